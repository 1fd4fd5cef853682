// The lists that a member and the sources it copies from send each other, and their bytes
// (docs/stream.md). Pure values; thread-compatible. Decoding takes any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire {

// The hash of the bytes of one copy that begins at a byte offset of the tensor.
struct CopyContent {
  uint32_t tensor = 0;
  uint64_t begin = 0;
  uint64_t content = 0;
};
inline constexpr size_t kEncodedContentBytes = 4 + 8 + 8;  // of one hash in the list
std::string EncodeContents(std::span<const CopyContent> contents);
absl::StatusOr<std::vector<CopyContent>> DecodeContents(std::string_view bytes);

// Tensors that the target copies by itself.
std::string EncodeTensors(std::span<const uint32_t> tensors);
absl::StatusOr<std::vector<uint32_t>> DecodeTensors(std::string_view bytes);

}  // namespace rewire
