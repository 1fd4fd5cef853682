// A rectangular part of a logical tensor, as the offsets and sizes of PyTorch's and Megatron-Core's
// sharded checkpoints. In elements. Pure and thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rewire::state {

inline constexpr size_t kMaxDims = 8;

struct Chunk {
  uint32_t dims = 0;
  std::array<uint64_t, kMaxDims> begin{};
  std::array<uint64_t, kMaxDims> end{};
  bool operator==(const Chunk&) const = default;
  auto operator<=>(const Chunk&) const = default;

  // The whole of a tensor. shape: at most kMaxDims sizes.
  static Chunk Whole(std::span<const uint64_t> shape);
  [[nodiscard]] uint64_t size(size_t dim) const { return end[dim] - begin[dim]; }
  [[nodiscard]] uint64_t elements() const;
  [[nodiscard]] bool empty() const { return elements() == 0; }
};

// Returns the part that both have; it is empty where they share nothing.
Chunk Intersection(const Chunk& a, const Chunk& b);

// Appends the chunks that together are the elements [begin, end) of `whole` in row-major order:
// at most 2 * dims - 1. end: at most whole.elements().
void AppendInterval(const Chunk& whole, uint64_t begin, uint64_t end, std::vector<Chunk>* chunks);

// Returns the elements of `whole` that `cut` does not have: at most 2 * dims chunks, which share
// nothing. cut: inside `whole`.
std::vector<Chunk> Difference(const Chunk& whole, const Chunk& cut);

// Returns "[0:4, 8:16]", for errors.
std::string Text(const Chunk& chunk);

}  // namespace rewire::state
