// A world record as the bytes of one store record (docs/store.md). Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/transition/world.h"

namespace rewire {

std::string EncodeRecord(const WorldRecord& record);
// Every byte must be used and every count must fit: anything else is a DataLoss error.
absl::StatusOr<WorldRecord> DecodeRecord(std::string_view bytes);

}  // namespace rewire
