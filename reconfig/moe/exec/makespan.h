// The model of a round: when moved rows arrive, in which order a device computes rows, and how long
// a round with given moves takes, from measured times of copies and rows. Integer arithmetic, ties
// to the lowest number, so every process of a node chooses alike. The functions are pure and
// thread-safe; Makespan is thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

// Measured times in picoseconds; 0: not known yet.
struct Speeds {
  uint32_t row = 0;  // one row of an expert's forward GEMM
  uint32_t kib = 0;  // 1024 bytes between devices
  // Time from the beginning of a forward round until its first copy begins, mostly planning.
  uint32_t start = 0;
};

// Returns the arrival of each move's weights and tokens at its helper, in picoseconds since the
// round began. A device sends its moves one after the other.
[[nodiscard]] std::vector<uint64_t> Arrivals(std::span<const PlacedMove> moves, const Shape& shape,
                                             const Speeds& speeds, bool backward, bool stay);

// One in kAtOnce of a device's static rows is computed before there is a plan.
inline constexpr uint32_t kAtOnce = 4;

struct Arrival {
  uint64_t at = 0;  // picoseconds since the round began
  uint32_t rows = 0;
  uint32_t index = 0;  // the caller's index
};

struct Turn {
  bool received = false;
  uint32_t index = 0;  // number of an own run of rows, or Arrival::index
};

// Orders a device's computation of own rows and received rows. Received rows are computed as soon
// as they should be there, so that results travel while other rows are computed. Own rows fill the
// time until then. Returns all own runs and arrivals. Until the next arrival, the largest own run
// that ends before it comes next, or else the smallest. at_once: rows that are computed before;
// row: picoseconds.
[[nodiscard]] std::vector<Turn> TakeTurns(uint64_t at_once, std::span<const uint32_t> own_rows,
                                          std::vector<Arrival> arrivals, uint64_t row);

// Evaluates the time until the last device has all its rows after the dispatch, in picoseconds. The
// time covers forward and, with gradients, backward, whose rows take twice as long. A device
// computes received rows as soon as they are there, and its own rows otherwise (TakeTurns). The
// device sends results for others one after the other. One object evaluates many lists of moves for
// one batch without an allocation for each.
class Makespan {
 public:
  static constexpr uint64_t kTooLong = UINT64_MAX;

  // stay: weights sent forward are still there backward. `shape` must outlive this object.
  Makespan(const Batch& batch, const Shape& shape, const Speeds& speeds, bool stay);

  // Returns kTooLong if the time is `limit` or more.
  [[nodiscard]] uint64_t Of(std::span<const PlacedMove> moves, uint64_t limit = kTooLong);
  // A bit for each device whose moves can shorten the round: only these delay the last devices.
  [[nodiscard]] uint32_t Delaying(std::span<const PlacedMove> moves);

 private:
  struct Device {
    uint64_t now = 0;
    uint64_t own = 0;       // time for own rows that are not computed yet
    uint64_t all_own = 0;   // time for all own rows
    uint64_t back = 0;      // when its results for others are back at their owners
    uint64_t returned = 0;  // when others' results for this device are back
  };
  struct Direction {
    bool backward = false;
    uint64_t row = 0;           // picoseconds
    std::vector<Device> begin;  // the devices' state without moves
  };

  [[nodiscard]] uint64_t Take(const Direction& direction, std::span<const PlacedMove> moves,
                              uint64_t limit);
  [[nodiscard]] uint32_t Last() const;

  const Shape& shape_;
  const Speeds speeds_;
  const bool stay_;
  std::vector<Direction> directions_;
  std::vector<Device> devices_;  // devices of the current direction
  std::vector<uint64_t> given_;  // given by each device, up to the current move
  std::vector<std::pair<uint64_t, uint32_t>> order_;  // arrival times with the index of the move
};

}  // namespace rewire::moe
