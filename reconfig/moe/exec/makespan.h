// How long a round will take with given moves, from what copies and rows took before, and which
// moves are worth their copies: "straggler removed per byte and per microsecond" is what is left of
// that once it is known when the bytes arrive. Pure, in integers, so that every process of a node
// chooses alike; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/moe/balance.h"
#include "reconfig/moe/exec/shape.h"
#include "reconfig/moe/exec/stow.h"

namespace rewire::moe {

// As measured; in picoseconds, 0: not known yet.
struct Speeds {
  uint32_t row = 0;  // of an expert's forward GEMM
  uint32_t kib = 0;  // 1024 bytes between devices
};

// What need not be copied.
struct Holdings {
  std::vector<std::vector<Slot>> slots;  // of each device
  bool stay = false;  // what comes for a forward round is there yet in the backward one
};

// When each move's weights and tokens are at its helper, in picoseconds since the round began: what
// a device gives leaves one after the other.
[[nodiscard]] std::vector<uint64_t> Arrivals(const std::vector<Stowed>& moves, const Shape& shape,
                                             const Speeds& speeds, bool backward, bool stay);

// Picoseconds from the dispatch until the last device has all its rows, forward and, where there
// are gradients, backward, which computes twice as much for a row. A device computes what it has
// received as soon as that is there and its own rows otherwise (turns.h); what it has computed for
// others leaves one after the other.
[[nodiscard]] uint64_t Makespan(const Batch& batch, const std::vector<Stowed>& moves,
                                const Shape& shape, const Speeds& speeds, bool stay);

// The moves of BalanceMoves() that fit; fewer of them if copies take so long that the round is
// through earlier that way, and more that go to where their weights are. None in the end where
// every copy is too slow.
[[nodiscard]] std::vector<Stowed> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                              const Shape& shape, const Speeds& speeds,
                                              const Holdings& holdings);

}  // namespace rewire::moe
