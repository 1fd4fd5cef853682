#include "reconfig/moe/fsep/seats.h"

#include <algorithm>
#include <tuple>

namespace rewire::moe::fsep {

Seats::Seats(const Topology& topology, const Placement& placement) : per_node_(topology.per_node) {
  for (uint32_t i = 0; i < placement.slots.size(); ++i) {
    if (placement.slots[i] == kEmptySlot) continue;
    seats_.push_back({placement.slots[i], i / placement.capacity, i % placement.capacity});
  }
  std::sort(seats_.begin(), seats_.end(), [](const Seat& a, const Seat& b) {
    return std::tie(a.expert, a.device, a.slot) < std::tie(b.expert, b.device, b.slot);
  });
  const auto same = [](const Seat& a, const Seat& b) {
    return a.expert == b.expert && a.device == b.device;
  };
  seats_.erase(std::unique(seats_.begin(), seats_.end(), same), seats_.end());
  for (size_t begin = 0, end = 0; begin < seats_.size(); begin = end) {
    while (end < seats_.size() && seats_[end].expert == seats_[begin].expert &&
           seats_[end].device / per_node_ == seats_[begin].device / per_node_) {
      ++end;
    }
    groups_.push_back(std::span(seats_).subspan(begin, end - begin));
  }
}

}  // namespace rewire::moe::fsep
