// How long a round will take with given moves, from the measured times of copies and rows. Pure, in
// integers, so that every process of a node chooses alike; thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reconfig/moe/batch.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// As measured; in picoseconds, 0: not known yet.
struct Speeds {
  uint32_t row = 0;  // of an expert's forward GEMM
  uint32_t kib = 0;  // 1024 bytes between devices
  // From the beginning of a forward round until its first copy begins: planning, for the most part.
  uint32_t start = 0;
};

// When each move's weights and tokens are at its helper, in picoseconds since the round began: what
// a device gives leaves one after the other.
[[nodiscard]] std::vector<uint64_t> Arrivals(std::span<const Stowed> moves, const Shape& shape,
                                             const Speeds& speeds, bool backward, bool stay);

// Picoseconds from the dispatch until the last device has all its rows, forward and, where there
// are gradients, backward, which computes twice as much for a row. A device computes what it has
// received as soon as that is there and its own rows otherwise (turns.h); what it has computed for
// others leaves one after the other. One object evaluates many lists of moves for one batch without
// allocating memory for each.
class Makespan {
 public:
  static constexpr uint64_t kTooLong = UINT64_MAX;

  // stay: weights that come for the forward round are still there in the backward one.
  // `shape` must outlive this.
  Makespan(const Batch& batch, const Shape& shape, const Speeds& speeds, bool stay);

  // kTooLong where it is `limit` or more.
  [[nodiscard]] uint64_t Of(std::span<const Stowed> moves, uint64_t limit = kTooLong);
  // A bit for each device whose moves can shorten the round: only they delay the devices that end
  // last with these moves.
  [[nodiscard]] uint32_t Delaying(std::span<const Stowed> moves);

 private:
  struct Device {
    uint64_t now = 0;
    uint64_t own = 0;       // time for own rows that are not computed yet
    uint64_t all_own = 0;   // time for all own rows
    uint64_t back = 0;      // when what it has computed for others is back
    uint64_t returned = 0;  // when what others computed for it is
  };
  struct Direction {
    bool backward = false;
    uint64_t row = 0;           // picoseconds
    std::vector<Device> begin;  // without moves
  };

  [[nodiscard]] uint64_t Take(const Direction& direction, std::span<const Stowed> moves,
                              uint64_t limit);
  [[nodiscard]] uint32_t Last() const;

  const Shape& shape_;
  const Speeds speeds_;
  const bool stay_;
  std::vector<Direction> directions_;
  std::vector<Device> devices_;                       // of the direction in hand
  std::vector<uint64_t> given_;                       // by each device, up to the move in hand
  std::vector<std::pair<uint64_t, uint32_t>> order_;  // arrivals
};

}  // namespace rewire::moe
