// The stream's wire format; see fragment.h. Pure.
#include "reconfig/stream/fragment.h"

#include "reconfig/base/bytes.h"
#include "reconfig/base/hash.h"

namespace rewire {
namespace {

constexpr uint32_t kGreetingMagic = 0x31475752;  // "RWG1"
constexpr uint32_t kHeaderMagic = 0x31465752;    // "RWF1"
constexpr uint32_t kReplyMagic = 0x31415752;     // "RWA1"

std::string Sealed(ByteWriter* out) {
  out->Put(ContentHash(out->bytes().data(), out->bytes().size(), 0));
  return out->Take();
}

// The check at the end is that of what stands before it.
bool SealHolds(std::string_view bytes, size_t size) {
  if (bytes.size() != size) return false;
  const uint64_t check = ByteReader(bytes.substr(size - 8)).Get<uint64_t>();
  return check == ContentHash(bytes.data(), size - 8, 0);
}

}  // namespace

std::string EncodeGreeting(const Greeting& g) {
  ByteWriter out;
  out.Put(kGreetingMagic);
  out.Put(uint16_t{1});
  out.Put(g.key.purpose);
  out.Put(g.key.epoch);
  out.Put(g.key.secret);
  out.Put(g.sender);
  out.Put(uint32_t{0});
  out.Put(g.incarnation);
  return Sealed(&out);
}

std::optional<Greeting> DecodeGreeting(std::string_view bytes) {
  if (!SealHolds(bytes, kGreetingSize)) return std::nullopt;
  ByteReader in(bytes);
  if (in.Get<uint32_t>() != kGreetingMagic || in.Get<uint16_t>() != 1) return std::nullopt;
  Greeting g;
  const auto purpose = in.Get<uint16_t>();
  if (purpose < 1 || purpose > 3) return std::nullopt;
  g.key.purpose = static_cast<Purpose>(purpose);
  g.key.epoch = in.Get<Epoch>();
  g.key.secret = in.Get<uint64_t>();
  g.sender = in.Get<MemberId>();
  if (in.Get<uint32_t>() != 0) return std::nullopt;
  g.incarnation = in.Get<uint64_t>();
  return g;
}

std::string EncodeHeader(const FragmentHeader& h) {
  ByteWriter out;
  out.Put(kHeaderMagic);
  out.Put(h.tensor);
  out.Put(h.epoch);
  out.Put(h.secret);
  out.Put(h.version);
  out.Put(h.offset);
  out.Put(h.bytes);
  out.Put(uint32_t{0});
  out.Put(h.content);
  return Sealed(&out);
}

std::optional<FragmentHeader> DecodeHeader(std::string_view bytes) {
  if (!SealHolds(bytes, kHeaderSize)) return std::nullopt;
  ByteReader in(bytes);
  if (in.Get<uint32_t>() != kHeaderMagic) return std::nullopt;
  FragmentHeader h;
  h.tensor = in.Get<uint32_t>();
  h.epoch = in.Get<Epoch>();
  h.secret = in.Get<uint64_t>();
  h.version = in.Get<uint64_t>();
  h.offset = in.Get<uint64_t>();
  h.bytes = in.Get<uint32_t>();
  if (in.Get<uint32_t>() != 0) return std::nullopt;
  h.content = in.Get<uint64_t>();
  if (h.bytes == 0 || h.bytes > kFragmentBytes || h.offset > UINT64_MAX - h.bytes) {
    return std::nullopt;
  }
  return h;
}

std::string EncodeReply(Reply reply) {
  ByteWriter out;
  out.Put(kReplyMagic);
  out.Put(reply);
  return out.Take();
}

std::optional<Reply> DecodeReply(std::string_view bytes) {
  ByteReader in(bytes);
  if (bytes.size() != kReplySize || in.Get<uint32_t>() != kReplyMagic) return std::nullopt;
  const auto reply = in.Get<uint32_t>();
  if (reply < 1 || reply > 4) return std::nullopt;
  return static_cast<Reply>(reply);
}

}  // namespace rewire
