#include "reconfig/moe/fsep/exchange_plan.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>

namespace rewire::moe::fsep {
namespace {

// An expert on a device, in one or more slots.
struct Seat {
  uint32_t expert = 0;
  uint32_t device = 0;
  uint32_t slot = 0;  // the device's first slot with this expert
};

// Lists, by node, the devices that have an expert in a slot.
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

using Group = std::span<const Seat>;

class Planner {
 public:
  Planner(const Topology& topology, const Placement& placement, uint32_t rank)
      : topology_(topology),
        seats_(topology, placement),
        slots_(std::span(placement.slots)
                   .subspan(size_t{rank} * placement.capacity, placement.capacity)),
        rank_(rank),
        node_(rank / topology.per_node),
        devices_(topology.devices()),
        own_staging_(placement.capacity * topology.per_node) {}

  std::vector<Step> Restore() const;
  std::vector<Step> Reduce() const;

 private:
  // Returns the device that forwards a chunk of a group's expert: the chunk's owner or, if the
  // owner is in another node, one of the seats. The seats take turns so that the work is even.
  uint32_t Hub(Group group, uint32_t chunk) const {
    if (chunk / topology_.per_node == seats_.NodeOf(group)) return chunk;
    return group[(chunk + group[0].expert) % group.size()].device;
  }
  bool IsOfMyNode(Group group) const { return seats_.NodeOf(group) == node_; }
  // Returns this rank's seat in a group; null if the rank has none.
  const Seat* Mine(Group group) const {
    const auto found =
        std::find_if(group.begin(), group.end(), [&](const Seat& s) { return s.device == rank_; });
    return found == group.end() ? nullptr : &*found;
  }
  Chunk InSlot(uint32_t slot, uint32_t chunk) const {
    return {Memory::kSlots, slot * devices_ + chunk};
  }
  // Calls `function` for each further slot of this rank with the seat's expert.
  template <typename Function>
  void EachTwin(const Seat& seat, const Function& function) const {
    for (uint32_t s = seat.slot + 1; s < slots_.size(); ++s) {
      if (slots_[s] == seat.expert) function(s);
    }
  }

  void AddTwins(Step* step) const;
  void GatherInNode(Step* step, std::map<std::pair<uint32_t, uint32_t>, Sum>* parts) const;

  const Topology topology_;
  const Seats seats_;
  const std::span<const uint32_t> slots_;  // the rank's own slots
  const uint32_t rank_, node_, devices_;
  // Staging for the rank's own sums, which is needed until the end. The rest of the staging is free
  // when the sums for other nodes are complete.
  const uint32_t own_staging_;
};

std::vector<Step> Planner::Restore() const {
  Step across, within, twins;
  for (const Group group : seats_.groups()) {
    const Chunk own{Memory::kShards, group[0].expert};
    if (!IsOfMyNode(group)) {
      across.sends.push_back({Hub(group, rank_), own});
      continue;
    }
    for (const Seat& seat : group) {
      if (seat.device != rank_) across.sends.push_back({seat.device, own});
    }
    const Seat* const mine = Mine(group);
    if (mine == nullptr) continue;
    across.copies.push_back({own, InSlot(mine->slot, rank_)});
    for (uint32_t chunk = 0; chunk < devices_; ++chunk) {
      if (chunk == rank_) continue;
      const Chunk to = InSlot(mine->slot, chunk);
      const uint32_t hub = Hub(group, chunk);
      if (hub == chunk || hub == rank_) {
        across.receives.push_back({chunk, to});
      } else {
        within.receives.push_back({hub, to});
      }
      if (hub != rank_) continue;
      for (const Seat& seat : group) {
        if (seat.device != rank_) within.sends.push_back({seat.device, to});
      }
    }
    EachTwin(*mine, [&](uint32_t twin) {
      twins.copies.push_back({InSlot(mine->slot, 0), InSlot(twin, 0), devices_});
    });
  }
  return {across, within, twins};
}

// Adds up the copies of one expert in several slots of a device.
void Planner::AddTwins(Step* step) const {
  for (const Group group : seats_.groups()) {
    const Seat* const mine = Mine(group);
    if (mine == nullptr) continue;
    std::vector<uint32_t> slots = {mine->slot};
    EachTwin(*mine, [&](uint32_t twin) { slots.push_back(twin); });
    if (slots.size() == 1) continue;
    for (uint32_t chunk = 0; chunk < devices_; ++chunk) {
      Sum sum{InSlot(mine->slot, chunk), {}};
      for (const uint32_t s : slots) sum.from.push_back(InSlot(s, chunk));
      step->sums.push_back(std::move(sum));
    }
  }
}

// Sends the chunks of this node's devices to their hubs. parts: by expert and chunk, the sums that
// this rank must compute for its node.
void Planner::GatherInNode(Step* step, std::map<std::pair<uint32_t, uint32_t>, Sum>* parts) const {
  uint32_t own = 0, foreign = own_staging_;
  for (const Group group : seats_.groups()) {
    if (!IsOfMyNode(group)) continue;
    const Seat* const mine = Mine(group);
    for (uint32_t chunk = 0; chunk < devices_; ++chunk) {
      const uint32_t hub = Hub(group, chunk);
      if (hub != rank_) {
        if (mine != nullptr) step->sends.push_back({hub, InSlot(mine->slot, chunk)});
        continue;
      }
      Sum part;
      for (const Seat& seat : group) {
        if (&seat == mine) {
          part.from.push_back(InSlot(mine->slot, chunk));
          continue;
        }
        part.from.push_back({Memory::kStaging, chunk == rank_ ? own++ : foreign++});
        step->receives.push_back({seat.device, part.from.back()});
      }
      part.to = mine != nullptr ? InSlot(mine->slot, chunk) : part.from[0];
      parts->emplace(std::pair(group[0].expert, chunk), std::move(part));
    }
  }
}

std::vector<Step> Planner::Reduce() const {
  Step within, across, last;
  std::map<std::pair<uint32_t, uint32_t>, Sum> parts;
  AddTwins(&within);
  GatherInNode(&within, &parts);
  for (const auto& [key, part] : parts) {
    if (part.from.size() > 1) across.sums.push_back(part);
    const uint32_t chunk = key.second;
    if (chunk != rank_) across.sends.push_back({chunk, part.to});
  }
  uint32_t staged = own_staging_;
  for (const Group group : seats_.groups()) {
    const uint32_t expert = group[0].expert;
    if (last.sums.empty() || last.sums.back().to.index != expert) {
      const Chunk own{Memory::kShards, expert};
      last.sums.push_back({own, {own}});
    }
    std::vector<Chunk>& from = last.sums.back().from;
    if (IsOfMyNode(group)) {
      from.push_back(parts.at({expert, rank_}).to);
    } else {
      from.push_back({Memory::kStaging, staged++});
      across.receives.push_back({Hub(group, rank_), from.back()});
    }
  }
  return {within, across, last};
}

}  // namespace

ExchangePlan PlanExchange(const Topology& topology, const Placement& placement, uint32_t rank) {
  const Planner planner(topology, placement, rank);
  return {planner.Restore(), planner.Reduce()};
}

uint32_t StagingChunks(const Topology& topology, uint32_t capacity) {
  // Own chunks need at most one staging chunk for each slot of the node. Gathered chunks for other
  // nodes need, for an expert with k seats, k - 1 times the chunks of this rank's turn. These are
  // at most (devices - 1) / k chunks, because the node's own chunks, k or more, are not among them.
  // So the gathered chunks are fewer than `devices`. Later, the same staging holds the chunks from
  // other nodes, at most one for each of their slots.
  return capacity * (topology.per_node + topology.devices());
}

}  // namespace rewire::moe::fsep
