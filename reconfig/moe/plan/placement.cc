#include "reconfig/moe/plan/placement.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"

namespace rewire::moe {
namespace {

constexpr uint64_t kNone = UINT64_MAX;

// Finds each node's least loaded device with a free slot. The load of a replica can be a fraction
// of a token, so loads are in units of 1/2^16 tokens.
class FreeDevices {
 public:
  FreeDevices(const Topology& topology, uint32_t capacity)
      : topology_(topology),
        used_(topology.devices()),
        load_(topology.devices()),
        least_(topology.nodes),
        capacity_(capacity) {
    for (uint32_t node = 0; node < topology.nodes; ++node) Refresh(node);
  }

  // Returns the load of the node's least loaded device with a free slot; kNone if the node is full.
  [[nodiscard]] uint64_t LeastLoad(uint32_t node) const { return least_[node].load; }
  // Takes a slot of the node's least loaded device for `load`, and returns the slot's number.
  uint32_t Take(uint32_t node, uint64_t load) {
    const uint32_t device = least_[node].device;
    const uint32_t slot = device * capacity_ + used_[device]++;
    load_[device] = used_[device] == capacity_ ? kNone : load_[device] + load;
    Refresh(node);
    return slot;
  }

 private:
  struct Least {
    uint64_t load = kNone;
    uint32_t device = 0;
  };
  void Refresh(uint32_t node) {
    const uint32_t first = node * topology_.per_node;
    Least least{load_[first], first};
    for (uint32_t d = first + 1; d < first + topology_.per_node; ++d) {
      least.device = load_[d] < least.load ? d : least.device;
      least.load = std::min(load_[d], least.load);
    }
    least_[node] = least;
  }

  const Topology topology_;
  std::vector<uint32_t> used_;
  std::vector<uint64_t> load_;  // kNone if all slots are used
  std::vector<Least> least_;
  const uint32_t capacity_;
};

// Chooses the node for the next replica of an expert: the node with the least loaded device among
// the nodes with fewest replicas, or among all nodes if these are full. copies: the expert's
// replicas in each node.
uint32_t ChooseNode(const FreeDevices& devices, std::span<const uint32_t> copies) {
  const uint32_t fewest = *std::min_element(copies.begin(), copies.end());
  uint32_t best = 0, best_of_all = 0;
  uint64_t load = kNone, load_of_all = kNone;
  for (uint32_t node = 0; node < copies.size(); ++node) {
    const uint64_t of_all = devices.LeastLoad(node);
    const uint64_t least = copies[node] == fewest ? of_all : kNone;
    best = least < load ? node : best;
    load = std::min(least, load);
    best_of_all = of_all < load_of_all ? node : best_of_all;
    load_of_all = std::min(of_all, load_of_all);
  }
  return load != kNone ? best : best_of_all;
}

}  // namespace

absl::Status Check(const Placement& placement, const Topology& topology, uint32_t experts) {
  const size_t slots = size_t{topology.devices()} * placement.capacity;
  if (placement.slots.size() != slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement: slots=", placement.slots.size(), ": must be ", slots));
  }
  std::vector<bool> placed(experts);
  for (const uint32_t e : placement.slots) {
    if (e == kEmptySlot) continue;
    if (e >= experts) {
      return absl::InvalidArgumentError(
          absl::StrCat("placement: expert=", e, ": must be below experts=", experts));
    }
    placed[e] = true;
  }
  const auto missing = std::find(placed.begin(), placed.end(), false);
  if (missing != placed.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("placement: expert ", missing - placed.begin(), " is on no device"));
  }
  return absl::OkStatus();
}

void SortSlots(Placement* placement) {
  const auto begin = placement->slots.begin();
  for (size_t d = 0; d < placement->slots.size(); d += placement->capacity) {
    std::sort(begin + static_cast<ptrdiff_t>(d),
              begin + static_cast<ptrdiff_t>(d + placement->capacity));
  }
}

uint64_t Hash(const Placement& placement) {
  uint64_t hash = placement.capacity;
  for (const uint32_t e : placement.slots) hash = MixWord(hash, e);
  return hash;
}

Placement PlaceGreedily(const Topology& topology, uint32_t capacity, std::span<const uint64_t> load,
                        std::span<const uint32_t> replicas) {
  // If every expert has equally many replicas in each node, all nodes are filled alike.
  const bool alike = std::all_of(replicas.begin(), replicas.end(),
                                 [&](uint32_t r) { return r % topology.nodes == 0; });
  const Topology filled{alike ? 1 : topology.nodes, topology.per_node};
  const uint32_t divisor = topology.nodes / filled.nodes;

  std::vector<uint32_t> order(load.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const uint64_t left = load[a] * replicas[b], right = load[b] * replicas[a];
    return left != right ? left > right : a < b;
  });
  Placement placement{capacity,
                      std::vector<uint32_t>(size_t{filled.devices()} * capacity, kEmptySlot)};
  FreeDevices devices(filled, capacity);
  std::vector<uint32_t> copies(filled.nodes);
  for (const uint32_t e : order) {
    const uint64_t share = (load[e] << 16) / replicas[e];
    std::fill(copies.begin(), copies.end(), 0);
    for (uint32_t r = 0; r < replicas[e] / divisor; ++r) {
      const uint32_t node = ChooseNode(devices, copies);
      placement.slots[devices.Take(node, share)] = e;
      ++copies[node];
    }
  }
  SortSlots(&placement);
  const size_t of_node = placement.slots.size();
  placement.slots.resize(of_node * divisor);
  for (uint32_t n = 1; n < divisor; ++n) {
    std::copy_n(placement.slots.begin(), of_node,
                placement.slots.begin() + static_cast<ptrdiff_t>(n * of_node));
  }
  return placement;
}

std::optional<std::vector<uint32_t>> EvenReplicas(uint32_t slots, uint32_t experts) {
  if (slots % experts != 0) return std::nullopt;
  return std::vector<uint32_t>(experts, slots / experts);
}

std::vector<uint32_t> QueueReplicas(std::span<const uint64_t> load, uint32_t slots,
                                    uint32_t nodes) {
  const auto experts = static_cast<uint32_t>(load.size());
  const uint32_t first = uint64_t{nodes} * experts <= slots ? nodes : 1;
  std::vector<uint32_t> replicas(experts, first);
  uint32_t used = first * experts;

  const auto less_per_replica = [&](uint32_t a, uint32_t b) {
    const uint64_t left = load[a] * replicas[b], right = load[b] * replicas[a];
    return left != right ? left < right : a > b;
  };
  std::priority_queue<uint32_t, std::vector<uint32_t>, decltype(less_per_replica)> queue(
      less_per_replica);
  for (uint32_t e = 0; e < experts; ++e) queue.push(e);
  while (used < slots && !queue.empty()) {
    const uint32_t e = queue.top();
    queue.pop();
    const uint32_t more = replicas[e] < nodes ? 1 : nodes;
    if (used + more > slots) continue;  // the expert keeps its replicas
    replicas[e] += more;
    used += more;
    queue.push(e);
  }
  return replicas;
}

}  // namespace rewire::moe
