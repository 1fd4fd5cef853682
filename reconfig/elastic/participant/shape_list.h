// Encodes the registered tensors for a comparison between members, which must have registered the
// same tensors. Pure and thread-safe. Decoding accepts any bytes. docs/stream.md has the format.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/state/topo/layout.h"

namespace rewire::elastic {

std::string EncodeShapes(std::span<const state::TensorShape> shapes);
absl::StatusOr<std::vector<state::TensorShape>> DecodeShapes(std::string_view bytes);

}  // namespace rewire::elastic
