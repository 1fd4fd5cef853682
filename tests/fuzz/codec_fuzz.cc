// libFuzzer: any bytes go through the stream splitter and the decoder. What decodes must encode to
// the very same bytes, and whatever the chunks are the same messages must come out.
#include <cstdlib>

#include "reconfig/base/bytes.h"
#include "reconfig/transition/codec.h"

namespace {

void Check(bool ok) {
  if (!ok) std::abort();
}

// The payload behind a right header of the type: random bytes alone seldom get that far.
void DecodePayload(uint16_t type, std::string_view payload) {
  rewire::ByteWriter frame;
  frame.Put(static_cast<uint32_t>(payload.size() + 4));
  frame.Put(rewire::kProtocolVersion);
  frame.Put(type);
  frame.PutRaw(payload);
  const absl::StatusOr<rewire::Message> message = rewire::Decode(frame.bytes());
  if (!message.ok()) return;
  const absl::StatusOr<std::string> again = rewire::Encode(*message);
  Check(again.ok() && *again == frame.bytes());
}

std::string Split(std::string_view bytes, size_t chunk) {
  rewire::FrameBuffer buffer;
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += chunk) {
    buffer.Append(bytes.substr(at, chunk));
    while (const auto message = buffer.Next()) {
      if (!message->ok()) return out + "error";
      out += *rewire::Encode(**message);
    }
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (size == 0) return 0;
  DecodePayload(data[0] % 27, bytes.substr(1));
  Check(Split(bytes, size) == Split(bytes, 1 + data[0] % 16));
  return 0;
}
