// Encodes and decodes the handshake; see handshake.h. Pure.
#include "reconfig/state/stream/handshake.h"

#include "reconfig/base/bytes.h"

namespace rewire::state {
namespace {

constexpr uint32_t kHelloMagic = 0x32475752;      // "RWG2"
constexpr uint32_t kChallengeMagic = 0x32435752;  // "RWC2"
constexpr uint32_t kProofMagic = 0x32505752;      // "RWP2"
constexpr uint16_t kVersion = 2;

std::array<unsigned char, 32> Take32(ByteReader* in) {
  const std::string_view raw = in->Raw(32);
  return in->ok() ? KeyOfBytes(raw).bytes : std::array<unsigned char, 32>{};
}

}  // namespace

std::string EncodeStreamHello(const StreamHello& h) {
  ByteWriter out;
  out.Put(kHelloMagic);
  out.Put(kVersion);
  out.Put(h.purpose);
  out.Put(h.epoch);
  out.Put(h.sender);
  out.Put(h.receiver);
  out.Put(h.sender_incarnation);
  out.Put(h.receiver_incarnation);
  out.PutRaw(ViewOf(h.nonce));
  return out.Take();
}

std::optional<StreamHello> DecodeStreamHello(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.Get<uint32_t>() != kHelloMagic || in.Get<uint16_t>() != kVersion) return std::nullopt;
  const auto purpose = in.Get<uint16_t>();
  StreamHello h;
  h.epoch = in.Get<Epoch>();
  h.sender = in.Get<MemberId>();
  h.receiver = in.Get<MemberId>();
  h.sender_incarnation = in.Get<uint64_t>();
  h.receiver_incarnation = in.Get<uint64_t>();
  h.nonce = Take32(&in);
  if (!in.Finished() || purpose < 1 || purpose > 3) return std::nullopt;
  h.purpose = static_cast<Purpose>(purpose);
  return h;
}

std::string EncodeStreamChallenge(const StreamChallenge& c) {
  ByteWriter out;
  out.Put(kChallengeMagic);
  out.Put(static_cast<uint32_t>(c.known ? 1 : 2));
  out.PutRaw(ViewOf(c.nonce));
  out.PutRaw(ViewOf(c.proof));
  return out.Take();
}

std::optional<StreamChallenge> DecodeStreamChallenge(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.Get<uint32_t>() != kChallengeMagic) return std::nullopt;
  const auto answer = in.Get<uint32_t>();
  StreamChallenge c;
  c.known = answer == 1;
  c.nonce = Take32(&in);
  c.proof = Take32(&in);
  if (!in.Finished() || answer < 1 || answer > 2) return std::nullopt;
  return c;
}

std::string EncodeStreamProof(const Code& proof) {
  ByteWriter out;
  out.Put(kProofMagic);
  out.Put(uint32_t{0});
  out.PutRaw(ViewOf(proof));
  return out.Take();
}

std::optional<Code> DecodeStreamProof(std::string_view bytes) {
  ByteReader in(bytes);
  if (in.Get<uint32_t>() != kProofMagic || in.Get<uint32_t>() != 0) return std::nullopt;
  const Code proof = Take32(&in);
  if (!in.Finished()) return std::nullopt;
  return proof;
}

Key ConnectionKey(const Key& stream, const StreamHello& hello) {
  ByteWriter context;
  context.Put(hello.purpose);
  context.Put(hello.epoch);
  context.Put(hello.sender);
  context.Put(hello.receiver);
  return DeriveKey(stream, "rewire stream connection", context.bytes());
}

}  // namespace rewire::state
