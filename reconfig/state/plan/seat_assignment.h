// Chooses which member gets which slot of a new layout, so that most bytes stay where they are.
//
// An auction (Bertsekas, "The auction algorithm: a distributed relaxation method for the assignment
// problem", 1988): members bid for the slots in which they keep most bytes, against rising prices.
// The prices also prove how many bytes any assignment could keep. Pure and deterministic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/state/plan/plan.h"

namespace rewire::state {

struct SeatAssignment {
  std::vector<Seat> seats;  // by slot of the new layout
  uint64_t kept_bytes = 0;
  // No assignment keeps more. With at most 64 members both are equal; with more, kept_bytes is at
  // least 99.9 % of it.
  uint64_t bound_bytes = 0;
};

// members: as many as `to` has slots, each once. Those without a slot of `from` have no state.
// from.layout and to: layouts of the same tensors (CheckSameTensors()).
SeatAssignment AssignSeats(const SeatedLayout& from, const ParallelLayout& to,
                           std::span<const Seat> members);

}  // namespace rewire::state
