// The notes that a slot sends to the next slot, and their encoding (docs/stream.md): the memory of
// its snapshots, the parts of a version that are in that memory, and copies to forget. Pure and
// thread-safe. Decoding accepts any bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::state {

// The number of versions that a slot keeps of its state; snapshotter.h says why.
inline constexpr size_t kKeptVersions = 3;

// The descriptors of a process's memory files, one for each version.
using MemoryFiles = std::array<int32_t, kKeptVersions>;

// The memory files of a process's snapshots.
struct SharedSnapshots {
  int32_t owner = 0;  // process id
  MemoryFiles descriptors = {};
  bool operator==(const SharedSnapshots&) const = default;
};
std::string EncodeSharedSnapshots(const SharedSnapshots& shared);
absl::StatusOr<SharedSnapshots> DecodeSharedSnapshots(std::string_view bytes);

// Bytes of a tensor that are in the memory, and their content hash.
struct ListedPart {
  uint32_t tensor = 0;
  uint64_t offset = 0;  // in bytes, in the tensor
  uint64_t bytes = 0;   // 1 or more
  uint64_t content = 0;
  bool operator==(const ListedPart&) const = default;
};
// Parts of one version. A version may need several lists.
struct PartList {
  uint64_t version = 0;
  uint32_t index = 0;  // which of the memory files
  std::vector<ListedPart> parts;
  bool operator==(const PartList&) const = default;
};
// The maximum number of parts in one note.
inline constexpr size_t kMostListedParts = 30000;
std::string EncodePartList(uint64_t version, uint32_t index, std::span<const ListedPart> parts);
absl::StatusOr<PartList> DecodePartList(std::string_view bytes);

// The version up to which the next slot forgets its copies.
std::string EncodeForget(uint64_t version);
absl::StatusOr<uint64_t> DecodeForget(std::string_view bytes);

}  // namespace rewire::state
