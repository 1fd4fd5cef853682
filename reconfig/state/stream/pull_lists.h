// The lists that a member and its sources exchange about copies, and their encoding
// (docs/stream.md). Pure and thread-safe. Decoding accepts any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::state {

// The hash of one copy's bytes, which begin at byte `begin` of the tensor.
struct CopyContent {
  uint32_t tensor = 0;
  uint64_t begin = 0;
  uint64_t content = 0;
};
inline constexpr size_t kEncodedContentBytes = 4 + 8 + 8;  // of one hash in the list
std::string EncodeContents(std::span<const CopyContent> contents);
absl::StatusOr<std::vector<CopyContent>> DecodeContents(std::string_view bytes);

// The tensors that the target copies by itself.
std::string EncodeTensors(std::span<const uint32_t> tensors);
absl::StatusOr<std::vector<uint32_t>> DecodeTensors(std::string_view bytes);

}  // namespace rewire::state
