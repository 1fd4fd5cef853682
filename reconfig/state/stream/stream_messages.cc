// Encodes, decodes and proves; see stream_messages.h. Pure.
#include "reconfig/state/stream/stream_messages.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/hash.h"

namespace rewire::state {
namespace {

constexpr uint32_t kHelloMagic = 0x32475752;      // "RWG2"
constexpr uint32_t kChallengeMagic = 0x32435752;  // "RWC2"
constexpr uint32_t kProofMagic = 0x32505752;      // "RWP2"
constexpr uint32_t kHeaderMagic = 0x32465752;     // "RWF2"
constexpr uint32_t kReplyMagic = 0x32415752;      // "RWA2"
constexpr uint16_t kVersion = 6;

std::array<unsigned char, 32> Take32(ByteReader* in) {
  const std::string_view raw = in->Raw(32);
  return in->ok() ? KeyOfBytes(raw).bytes : std::array<unsigned char, 32>{};
}

std::string Sealed(ByteWriter* out) {
  out->Put(ContentHash(out->bytes().data(), out->bytes().size(), 0));
  return out->Take();
}

absl::Status Malformed(const char* message, const char* field, uint64_t value, const char* rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("decode ", message, ": ", field, "=", value, ": ", rule));
}

// Checks the size, and the magic number with which every message begins.
absl::Status CheckForm(const char* message, std::string_view bytes, size_t size, uint32_t magic) {
  if (bytes.size() != size) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode ", message, ": bytes=", bytes.size(), ": must be ", size));
  }
  const auto found = ByteReader(bytes).Get<uint32_t>();
  if (found == magic) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("decode ", message, ": magic=0x", absl::Hex(found),
                                                 ": must be 0x", absl::Hex(magic)));
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

absl::StatusOr<StreamHello> DecodeStreamHello(std::string_view bytes) {
  constexpr char kMessage[] = "stream hello";
  absl::Status form = CheckForm(kMessage, bytes, kStreamHelloSize, kHelloMagic);
  if (!form.ok()) return form;
  ByteReader in(bytes.substr(sizeof kHelloMagic));
  const auto version = in.Get<uint16_t>();
  if (version != kVersion) return Malformed(kMessage, "version", version, "must be 6");
  const auto purpose = in.Get<uint16_t>();
  if (purpose < 1 || purpose > 3) return Malformed(kMessage, "purpose", purpose, "must be 1 to 3");
  StreamHello h;
  h.purpose = static_cast<Purpose>(purpose);
  h.epoch = in.Get<Epoch>();
  h.sender = in.Get<MemberId>();
  h.receiver = in.Get<MemberId>();
  h.sender_incarnation = in.Get<uint64_t>();
  h.receiver_incarnation = in.Get<uint64_t>();
  h.nonce = Take32(&in);
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

absl::StatusOr<StreamChallenge> DecodeStreamChallenge(std::string_view bytes) {
  constexpr char kMessage[] = "stream challenge";
  absl::Status form = CheckForm(kMessage, bytes, kStreamChallengeSize, kChallengeMagic);
  if (!form.ok()) return form;
  ByteReader in(bytes.substr(sizeof kChallengeMagic));
  const auto answer = in.Get<uint32_t>();
  if (answer < 1 || answer > 2) return Malformed(kMessage, "answer", answer, "must be 1 or 2");
  StreamChallenge c;
  c.known = answer == 1;
  c.nonce = Take32(&in);
  c.proof = Take32(&in);
  return c;
}

std::string EncodeStreamProof(const Code& proof) {
  ByteWriter out;
  out.Put(kProofMagic);
  out.Put(uint32_t{0});
  out.PutRaw(ViewOf(proof));
  return out.Take();
}

absl::StatusOr<Code> DecodeStreamProof(std::string_view bytes) {
  constexpr char kMessage[] = "stream proof";
  absl::Status form = CheckForm(kMessage, bytes, kStreamProofSize, kProofMagic);
  if (!form.ok()) return form;
  ByteReader in(bytes.substr(sizeof kProofMagic));
  const auto reserved = in.Get<uint32_t>();
  if (reserved != 0) return Malformed(kMessage, "reserved", reserved, "must be 0");
  return Take32(&in);
}

Key ConnectionKey(const Key& stream, const StreamHello& hello) {
  ByteWriter context;
  context.Put(hello.purpose);
  context.Put(hello.epoch);
  context.Put(hello.sender);
  context.Put(hello.receiver);
  return DeriveKey(stream, "rewire stream connection", context.bytes());
}

ConnectingHandshake::ConnectingHandshake(const Key& stream, const StreamHello& hello)
    : stream_(stream), hello_(hello) {
  hello_.nonce = RandomNonce();
  bytes_ = EncodeStreamHello(hello_);
}

absl::StatusOr<std::string> ConnectingHandshake::ProofFor(std::string_view challenge) const {
  const absl::StatusOr<StreamChallenge> decoded = DecodeStreamChallenge(challenge);
  if (decoded.ok() && !decoded->known) {
    return absl::UnavailableError("stream handshake: the listening side does not know the stream");
  }
  const Key key = ConnectionKey(stream_, hello_);
  if (!decoded.ok() ||
      !SameCode(ProofOf(Side::kListening, key, bytes_, decoded->nonce), ViewOf(decoded->proof))) {
    return absl::PermissionDeniedError("stream handshake: wrong proof of the listening side");
  }
  return EncodeStreamProof(ProofOf(Side::kConnecting, key, bytes_, decoded->nonce));
}

std::string EncodeHeader(const FragmentHeader& h) {
  ByteWriter out;
  out.Put(kHeaderMagic);
  out.Put(h.tensor);
  out.Put(h.epoch);
  out.Put(h.version);
  out.Put(h.offset);
  out.Put(h.bytes);
  out.Put(uint32_t{0});
  out.Put(h.content);
  return Sealed(&out);
}

absl::StatusOr<FragmentHeader> DecodeHeader(std::string_view bytes) {
  constexpr char kMessage[] = "fragment header";
  absl::Status form = CheckForm(kMessage, bytes, kHeaderSize, kHeaderMagic);
  if (!form.ok()) return form;
  const uint64_t check = ByteReader(bytes.substr(kHeaderSize - 8)).Get<uint64_t>();
  if (check != ContentHash(bytes.data(), kHeaderSize - 8, 0)) {
    return Malformed(kMessage, "check", check, "does not match the bytes before it");
  }
  ByteReader in(bytes.substr(sizeof kHeaderMagic));
  FragmentHeader h;
  h.tensor = in.Get<uint32_t>();
  h.epoch = in.Get<Epoch>();
  h.version = in.Get<uint64_t>();
  h.offset = in.Get<uint64_t>();
  h.bytes = in.Get<uint32_t>();
  const auto reserved = in.Get<uint32_t>();
  h.content = in.Get<uint64_t>();
  if (reserved != 0) return Malformed(kMessage, "reserved", reserved, "must be 0");
  if (h.bytes == 0 || h.bytes > kFragmentBytes) {
    return Malformed(kMessage, "bytes", h.bytes, "must be 1 to 1048576");
  }
  if (h.offset > UINT64_MAX - h.bytes) {
    return Malformed(kMessage, "offset", h.offset, "the fragment ends beyond 2^64");
  }
  return h;
}

std::string EncodeReply(Reply reply) {
  ByteWriter out;
  out.Put(kReplyMagic);
  out.Put(reply);
  return out.Take();
}

absl::StatusOr<Reply> DecodeReply(std::string_view bytes) {
  constexpr char kMessage[] = "stream reply";
  absl::Status form = CheckForm(kMessage, bytes, kReplySize, kReplyMagic);
  if (!form.ok()) return form;
  const auto reply = ByteReader(bytes.substr(sizeof kReplyMagic)).Get<uint32_t>();
  if (reply < 1 || reply > 3) return Malformed(kMessage, "reply", reply, "must be 1 to 3");
  return static_cast<Reply>(reply);
}

}  // namespace rewire::state
