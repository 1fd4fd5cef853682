// libFuzzer: any bytes as a control frame. A decoded frame is an object, its own encoding decodes
// to the same object, and every requested change is parsed or refused with a reason.
#include <string>

#include "reconfig/base/bytes.h"
#include "reconfig/control/agent/control_messages.h"
#include "reconfig/elastic/protocol/codec.h"
#include "tests/fuzz/require.h"

namespace {

void CheckFrame(std::string_view frame) {
  static_cast<void>(rewire::control::IsControl(frame));
  const auto object = rewire::control::DecodeControl(frame);
  if (!object.ok()) {
    Require(!object.status().message().empty());
    return;
  }
  Require(object->is_object());
  const std::string encoded = rewire::control::EncodeControl(*object);
  Require(rewire::control::IsControl(encoded));
  const auto again = rewire::control::DecodeControl(encoded);
  Require(again.ok() && *again == *object);
  for (const char* name : {"resize", "drain", "replace", "rebuild"}) {
    const auto change = rewire::control::ParseChange(name, *object);
    Require(change.ok() || !change.status().message().empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CheckFrame(bytes);
  // Uses the input as the JSON text of a frame with a valid header.
  rewire::ByteWriter frame;
  frame.Put(static_cast<uint32_t>(bytes.size() + 4));
  frame.Put(rewire::elastic::kProtocolVersion);
  frame.Put(rewire::control::kControlType);
  frame.PutRaw(bytes);
  CheckFrame(frame.bytes());
  return 0;
}
