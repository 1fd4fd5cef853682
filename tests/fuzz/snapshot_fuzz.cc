// libFuzzer: any bytes as the notes between slots. An accepted part lies below 2^64, and an
// accepted note encodes to the same bytes.
#include <string_view>

#include "reconfig/state/snapshot/slot_notes.h"
#include "tests/fuzz/require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (const auto shared = rewire::state::DecodeSharedSnapshots(bytes); shared.ok()) {
    Require(shared->owner > 0);
    Require(rewire::state::EncodeSharedSnapshots(*shared) == bytes);
  }
  if (const auto version = rewire::state::DecodeForget(bytes); version.ok()) {
    Require(rewire::state::EncodeForget(*version) == bytes);
  }
  if (const auto list = rewire::state::DecodePartList(bytes); list.ok()) {
    Require(list->index < rewire::state::kKeptVersions);
    for (const rewire::state::ListedPart& part : list->parts) {
      Require(part.bytes > 0 && part.offset + part.bytes > part.offset);
    }
    Require(rewire::state::EncodePartList(list->version, list->index, list->parts) == bytes);
  }
  return 0;
}
