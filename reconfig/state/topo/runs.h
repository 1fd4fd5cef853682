// The bytes of a chunk in a member's memory: runs of equal length at regular distances. Packed,
// they are in the chunk's row-major order, which is the same on the member that sends the chunk and
// on the one that receives it, however their memories differ. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "reconfig/state/topo/parallel_layout.h"

namespace rewire::state {

class Runs {
 public:
  Runs() = default;
  // One run.
  Runs(uint64_t begin, uint64_t bytes) : begin_(begin), run_(bytes) {}
  // chunk: inside the piece.
  Runs(const Piece& piece, const Chunk& chunk, uint64_t element_bytes);
  bool operator==(const Runs&) const = default;

  // The distance of the first run from the begin of the member's part, in bytes.
  [[nodiscard]] uint64_t begin() const { return begin_; }
  // The length of a run.
  [[nodiscard]] uint64_t run() const { return run_; }
  [[nodiscard]] uint64_t bytes() const;  // of all runs
  // The end of the last run in the member's part.
  [[nodiscard]] uint64_t end() const;
  [[nodiscard]] bool contiguous() const { return depth_ == 0; }
  // Returns whether the runs have the same lengths and distances, wherever they begin.
  [[nodiscard]] bool Alike(const Runs& other) const {
    return run_ == other.run_ && depth_ == other.depth_ && levels_ == other.levels_;
  }

  // Calls visit(offset, at, n, pitch, rows) for the packed bytes [from, from + bytes): `rows` runs,
  // or parts of one, of n bytes each. The first is `offset` bytes after begin() in memory and at
  // byte `at` of those that are visited. The others follow it at the distance `pitch` in memory.
  template <typename Visit>
  void ForEach(uint64_t from, uint64_t bytes, const Visit& visit) const;

 private:
  struct Level {
    uint64_t count = 1;
    uint64_t stride = 0;  // in bytes
    bool operator==(const Level&) const = default;
  };
  [[nodiscard]] uint64_t OffsetOf(uint64_t run) const;

  uint64_t begin_ = 0;
  uint64_t run_ = 0;
  uint32_t depth_ = 0;
  std::array<Level, kMaxDims> levels_{};  // the innermost first
};

inline uint64_t Runs::OffsetOf(uint64_t run) const {
  uint64_t offset = 0;
  for (uint32_t i = 0; i < depth_; ++i) {
    offset += run % levels_[i].count * levels_[i].stride;
    run /= levels_[i].count;
  }
  return offset;
}

template <typename Visit>
void Runs::ForEach(uint64_t from, uint64_t bytes, const Visit& visit) const {
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t run = (from + at) / run_;
    const uint64_t inside = (from + at) % run_;
    uint64_t n = std::min(run_ - inside, bytes - at);
    uint64_t rows = 1;
    const uint64_t pitch = depth_ == 0 ? 0 : levels_[0].stride;
    if (n == run_ && depth_ > 0) {
      const uint64_t left = levels_[0].count - run % levels_[0].count;
      rows = std::min(left, (bytes - at) / run_);
    }
    visit(OffsetOf(run) + inside, at, n, pitch, rows);
    at += n * rows;
  }
}

}  // namespace rewire::state
