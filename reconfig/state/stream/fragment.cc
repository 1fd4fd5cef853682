// Encodes and decodes the stream's wire format; see fragment.h. Pure.
#include "reconfig/state/stream/fragment.h"

#include "reconfig/base/bytes.h"
#include "reconfig/base/hash.h"

namespace rewire::state {
namespace {

constexpr uint32_t kHeaderMagic = 0x32465752;  // "RWF2"
constexpr uint32_t kReplyMagic = 0x32415752;   // "RWA2"

std::string Sealed(ByteWriter* out) {
  out->Put(ContentHash(out->bytes().data(), out->bytes().size(), 0));
  return out->Take();
}

// Returns whether the final check matches the bytes before it.
bool SealHolds(std::string_view bytes, size_t size) {
  if (bytes.size() != size) return false;
  const uint64_t check = ByteReader(bytes.substr(size - 8)).Get<uint64_t>();
  return check == ContentHash(bytes.data(), size - 8, 0);
}

}  // namespace

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

std::optional<FragmentHeader> DecodeHeader(std::string_view bytes) {
  if (!SealHolds(bytes, kHeaderSize)) return std::nullopt;
  ByteReader in(bytes);
  if (in.Get<uint32_t>() != kHeaderMagic) return std::nullopt;
  FragmentHeader h;
  h.tensor = in.Get<uint32_t>();
  h.epoch = in.Get<Epoch>();
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
  if (reply < 1 || reply > 3) return std::nullopt;
  return static_cast<Reply>(reply);
}

}  // namespace rewire::state
