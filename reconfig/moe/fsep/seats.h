// Lists, by node, the devices that have an expert in a slot. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reconfig/moe/plan/placement.h"

namespace rewire::moe::fsep {

// An expert on a device, in one or more slots.
struct Seat {
  uint32_t expert = 0;
  uint32_t device = 0;
  uint32_t slot = 0;  // the device's first slot with this expert
};

class Seats {
 public:
  Seats(const Topology& topology, const Placement& placement);

  // Returns the seats of each pair of an expert and a node that has the expert, sorted by expert
  // and node; seats are sorted by device. A group is never empty.
  [[nodiscard]] const std::vector<std::span<const Seat>>& groups() const { return groups_; }
  [[nodiscard]] uint32_t NodeOf(std::span<const Seat> group) const {
    return group[0].device / per_node_;
  }

 private:
  const uint32_t per_node_;
  std::vector<Seat> seats_;
  std::vector<std::span<const Seat>> groups_;
};

}  // namespace rewire::moe::fsep
