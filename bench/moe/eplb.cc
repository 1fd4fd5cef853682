#include "bench/moe/eplb.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {
namespace {

// Packs n items into packs of n / packs items each. In the order of falling weight, each item goes
// into the lightest pack with room. Returns the pack of each item.
std::vector<uint32_t> Pack(const std::vector<double>& weights, uint32_t packs) {
  const size_t room = weights.size() / packs;
  std::vector<uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return weights[a] > weights[b]; });
  std::vector<uint32_t> pack(weights.size());
  std::vector<double> filled(packs);
  std::vector<size_t> items(packs);
  for (const uint32_t i : order) {
    uint32_t best = packs;
    for (uint32_t p = 0; p < packs; ++p) {
      if (items[p] < room && (best == packs || filled[p] < filled[best])) best = p;
    }
    pack[i] = best;
    filled[best] += weights[i];
    ++items[best];
  }
  return pack;
}

// Returns the expert in each slot. Every expert gets one slot. Each further slot goes to the expert
// with the largest load per replica.
std::vector<uint32_t> Replicate(const std::vector<double>& weights, size_t slots) {
  std::vector<uint32_t> expert(slots);
  std::vector<uint32_t> replicas(weights.size(), 1);
  for (size_t s = 0; s < slots; ++s) {
    if (s < weights.size()) {
      expert[s] = static_cast<uint32_t>(s);
      continue;
    }
    size_t best = 0;
    for (size_t e = 1; e < weights.size(); ++e) {
      if (weights[e] / replicas[e] > weights[best] / replicas[best]) best = e;
    }
    expert[s] = static_cast<uint32_t>(best);
    ++replicas[best];
  }
  return expert;
}

}  // namespace

std::vector<uint32_t> PackReplicas(std::span<const uint64_t> history, const EplbShape& shape) {
  const bool hierarchical = shape.groups % shape.nodes == 0 && history.size() % shape.groups == 0;
  const uint32_t nodes = hierarchical ? shape.nodes : 1;
  const uint32_t groups = hierarchical ? shape.groups : 1;
  const size_t group = history.size() / groups;
  std::vector<double> of_group(groups);
  for (size_t e = 0; e < history.size(); ++e) {
    of_group[e / group] += static_cast<double>(history[e]);
  }
  const std::vector<uint32_t> node_of = Pack(of_group, nodes);
  const uint32_t devices = shape.devices / nodes;
  std::vector<uint32_t> slots;
  for (uint32_t node = 0; node < nodes; ++node) {
    std::vector<uint32_t> experts;
    std::vector<double> weights;
    for (size_t e = 0; e < history.size(); ++e) {
      if (node_of[e / group] != node) continue;
      experts.push_back(static_cast<uint32_t>(e));
      weights.push_back(static_cast<double>(history[e]));
    }
    const std::vector<uint32_t> replicas = Replicate(weights, size_t{devices} * shape.slots);
    std::vector<uint32_t> count(experts.size());
    for (const uint32_t r : replicas) ++count[r];
    std::vector<double> of_replica;
    for (const uint32_t r : replicas) of_replica.push_back(weights[r] / count[r]);
    const std::vector<uint32_t> device_of = Pack(of_replica, devices);
    for (uint32_t d = 0; d < devices; ++d) {
      for (size_t r = 0; r < replicas.size(); ++r) {
        if (device_of[r] == d) slots.push_back(experts[replicas[r]]);
      }
    }
  }
  return slots;
}

std::vector<uint64_t> LoadsOfReplicas(std::span<const uint32_t> tokens,
                                      std::span<const uint32_t> slots, uint32_t devices) {
  std::vector<uint32_t> count(tokens.size());
  for (const uint32_t e : slots) ++count[e];
  std::vector<uint32_t> next(tokens.size());
  std::vector<uint64_t> loads(devices);
  const size_t room = slots.size() / devices;
  for (size_t s = 0; s < slots.size(); ++s) {
    const uint32_t e = slots[s];
    loads[s / room] += tokens[e] / count[e] + (next[e]++ < tokens[e] % count[e] ? 1 : 0);
  }
  return loads;
}

}  // namespace rewire::moe
