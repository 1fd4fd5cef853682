// Encodes and decodes a world record as one store record (docs/store.md). Pure and thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "reconfig/world/world.h"

namespace rewire::control {

std::string EncodeRecord(const WorldRecord& record);
// Decodes a record. Unused bytes, or a count that does not fit, are a DataLoss error.
absl::StatusOr<WorldRecord> DecodeRecord(std::string_view bytes);

}  // namespace rewire::control
