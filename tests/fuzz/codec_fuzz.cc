// Fuzzes the decoder of the protocol with libFuzzer. A decoded message must encode to the same
// bytes.
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "reconfig/base/bytes.h"
#include "reconfig/elastic/protocol/codec.h"
#include "tests/unit/elastic/protocol/sample_messages.h"

namespace {

constexpr uint16_t kTypes = std::variant_size_v<rewire::elastic::Message>;

void Check(bool ok) {
  if (!ok) std::abort();
}

void DecodeFrame(const std::string& frame) {
  const absl::StatusOr<rewire::elastic::Message> message = rewire::elastic::Decode(frame);
  if (!message.ok()) return;
  const absl::StatusOr<std::string> again = rewire::elastic::Encode(*message);
  Check(again.ok() && *again == frame);
}

// Prefixes the payload with a valid header of the type: random bytes are seldom a valid header.
void DecodePayload(uint16_t type, std::string_view payload) {
  rewire::ByteWriter frame;
  frame.Put(static_cast<uint32_t>(payload.size() + 4));
  frame.Put(rewire::elastic::kProtocolVersion);
  frame.Put(type);
  frame.PutRaw(payload);
  DecodeFrame(frame.Take());
}

const std::vector<std::string>& SampleFrames() {
  static const auto* const frames = [] {
    auto* out = new std::vector<std::string>;
    for (const rewire::elastic::Message& m : rewire::elastic::SampleMessages())
      out->push_back(*rewire::elastic::Encode(m));
    return out;
  }();
  return *frames;
}

// Damages a valid frame and decodes the frame. The first byte of `edits` chooses the frame; every
// further three bytes are a position (two bytes) and the new byte there. Then cuts or lengthens the
// frame to match its length field, and decodes the frame again.
void DecodeDamaged(std::string_view edits) {
  const std::vector<std::string>& frames = SampleFrames();
  std::string frame = frames[static_cast<unsigned char>(edits[0]) % frames.size()];
  for (edits.remove_prefix(1); edits.size() >= 3; edits.remove_prefix(3)) {
    uint16_t place;
    memcpy(&place, edits.data(), sizeof place);
    frame[place % frame.size()] = edits[2];
  }
  DecodeFrame(frame);
  const uint32_t length = rewire::ByteReader(frame).Get<uint32_t>();
  if (length >= 2 * frame.size()) return;
  frame.resize(length + sizeof length);
  DecodeFrame(frame);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size == 0) return 0;
  DecodePayload(data[0] % (kTypes + 2), bytes.substr(1));
  DecodeDamaged(bytes);
  return 0;
}
