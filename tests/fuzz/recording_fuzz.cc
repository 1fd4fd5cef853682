// libFuzzer: any bytes as a recording's header and records. Accepted input is in bounds, and
// decodes from its own encoding to the same value.
#include <string>

#include "reconfig/moe/plan/recording.h"
#include "tests/fuzz/require.h"

using namespace rewire::moe;

namespace {

void Records(std::string_view bytes, const RecordedShape& shape) {
  if (const auto recorded = DecodeRecord(bytes, shape); recorded.ok()) {
    Require(recorded->counts.devices() == shape.topology.devices());
    Require(EncodeRecord(*recorded) == bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto shape = DecodeShape(bytes); shape.ok()) {
    Require(Check(*shape).ok() && EncodeShape(*shape) == bytes);
    Records(bytes, *shape);
  }
  if (size < 3) return 0;
  // Adds valid checks: random bytes alone seldom get that far.
  const RecordedShape shape{{data[0], data[1]}, data[2]};
  const auto same = DecodeShape(EncodeShape(shape));
  Require(same.ok() == Check(shape).ok());
  if (!same.ok()) return 0;
  Require(*same == shape);
  if (RecordBytes(shape) > 4096) return 0;  // a limit for the fuzzer's speed
  Records(bytes.substr(3), shape);
  Recorded recorded{size, data[0], Counts(shape.topology.devices(), shape.experts)};
  for (size_t i = 0; i < recorded.counts.tokens().size(); ++i) {
    recorded.counts.tokens()[i] = data[i % size] * 0x01010101U;
  }
  std::string encoded = EncodeRecord(recorded);
  Require(encoded.size() == RecordBytes(shape));
  Require(DecodeRecord(encoded, shape).value() == recorded);
  char& changed = encoded[data[0] % encoded.size()];
  changed = static_cast<char>(changed ^ (1 << (data[1] % 8)));
  Require(!DecodeRecord(encoded, shape).ok());
  Require(!DecodeRecord(encoded.substr(1), shape).ok());
  return 0;
}
