// The registered tensors as one member tells them to another, which must have registered the same.
// Pure; thread-compatible. Decoding takes any bytes. docs/stream.md has the bytes.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/topo/layout.h"

namespace rewire {

std::string EncodeShapes(std::span<const TensorShape> shapes);
absl::StatusOr<std::vector<TensorShape>> DecodeShapes(std::string_view bytes);

}  // namespace rewire
