// Plans of all ranks, executed on texts that record the additions.
#include "reconfig/moe/fsep/exchange_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>

#include "tests/unit/moe/fsep/any_placement.h"

namespace rewire::moe::fsep {
namespace {

std::string Text(const std::string& what, uint32_t a, uint32_t b) {
  return what + std::to_string(a) + "." + std::to_string(b);
}

// Devices that hold texts instead of chunks.
class Devices {
 public:
  explicit Devices(const AnyPlacement& any) : any_(any), memory_(any.topology.devices()) {
    for (uint32_t d = 0; d < memory_.size(); ++d) {
      plans_.push_back(PlanExchange(any.topology, any.placement, d));
    }
  }

  void Put(uint32_t device, Chunk at, const std::string& text) { memory_[device][at] = text; }
  const std::string& At(uint32_t device, Chunk at) { return memory_[device][at]; }

  // All devices take each step together: senders and receivers must agree.
  void Run(std::vector<Step> ExchangePlan::*what) {
    const size_t steps = (plans_[0].*what).size();
    for (size_t i = 0; i < steps; ++i) {
      std::map<std::pair<uint32_t, uint32_t>, std::vector<std::string>> wire;
      for (uint32_t d = 0; d < memory_.size(); ++d) {
        const Step& step = (plans_[d].*what)[i];
        Compute(d, step);
        for (const Message& m : step.sends) {
          RC_ASSERT(m.peer != d);
          wire[{d, m.peer}].push_back(Read(d, m.chunk));
          ++sent[{d / any_.topology.per_node, m.peer / any_.topology.per_node}];
          if (i == 1) ++sent_in_second[d];
        }
      }
      for (uint32_t d = 0; d < memory_.size(); ++d) {
        std::map<uint32_t, size_t> next;
        for (const Message& m : (plans_[d].*what)[i].receives) {
          const std::vector<std::string>& from = wire[{m.peer, d}];
          RC_ASSERT(next[m.peer] < from.size());
          Write(d, m.chunk, from[next[m.peer]++]);
          ++received[d];
        }
        for (const auto& [peer, taken] : next) RC_ASSERT((wire[{peer, d}].size()) == taken);
      }
    }
  }

  std::map<std::pair<uint32_t, uint32_t>, uint32_t> sent;  // chunks, by the two nodes
  std::map<uint32_t, uint32_t> sent_in_second, received;   // key: device
  std::map<std::pair<uint32_t, Chunk>, uint32_t> writes;

 private:
  const std::string& Read(uint32_t d, Chunk at) {
    RC_ASSERT(memory_[d].contains(at));
    return memory_[d][at];
  }
  void Write(uint32_t d, Chunk at, const std::string& text) {
    const uint32_t slots = any_.placement.capacity * any_.topology.devices();
    const uint32_t most[] = {any_.experts, slots,
                             StagingChunks(any_.topology, any_.placement.capacity)};
    RC_ASSERT(at.index < most[static_cast<size_t>(at.memory)]);
    memory_[d][at] = text;
    ++writes[{d, at}];
  }
  void Compute(uint32_t d, const Step& step) {
    for (const Copy& copy : step.copies) {
      for (uint32_t i = 0; i < copy.chunks; ++i) {
        const Chunk from{copy.from.memory, copy.from.index + i};
        Write(d, {copy.to.memory, copy.to.index + i}, Read(d, from));
      }
    }
    for (const Sum& sum : step.sums) {
      RC_ASSERT(sum.from.size() > 1);
      std::string text = "(" + Read(d, sum.from[0]);
      for (size_t i = 1; i < sum.from.size(); ++i) text += "+" + Read(d, sum.from[i]);
      Write(d, sum.to, text + ")");
    }
  }

  const AnyPlacement any_;
  std::vector<ExchangePlan> plans_;
  std::vector<std::map<Chunk, std::string>> memory_;
};

// Returns (a+b+c), or a alone.
std::string Added(const std::vector<std::string>& texts) {
  std::string text = texts[0];
  for (size_t i = 1; i < texts.size(); ++i) text += "+" + texts[i];
  return texts.size() > 1 ? "(" + text + ")" : text;
}

// Returns the reduced value that the owner of a chunk must have in the end.
std::string Reduced(const AnyPlacement& any, uint32_t expert, uint32_t chunk) {
  const uint32_t capacity = any.placement.capacity;
  std::vector<std::string> nodes = {Text("grad", expert, chunk)};
  for (uint32_t n = 0; n < any.topology.nodes; ++n) {
    std::vector<std::string> devices;
    for (uint32_t i = 0; i < any.topology.per_node; ++i) {
      const uint32_t d = n * any.topology.per_node + i;
      std::vector<std::string> slots;
      for (uint32_t s = 0; s < capacity; ++s) {
        if (any.placement.slots[d * capacity + s] != expert) continue;
        slots.push_back(Text("d" + std::to_string(d) + "s", s, chunk));
      }
      if (!slots.empty()) devices.push_back(Added(slots));
    }
    if (!devices.empty()) nodes.push_back(Added(devices));
  }
  return Added(nodes);
}

// Returns the distinct experts in each range of slots of this length.
std::vector<uint32_t> Distinct(const AnyPlacement& any, uint32_t length) {
  std::vector<uint32_t> distinct;
  for (size_t begin = 0; begin < any.placement.slots.size(); begin += length) {
    std::set<uint32_t> experts(
        any.placement.slots.begin() + static_cast<ptrdiff_t>(begin),
        any.placement.slots.begin() + static_cast<ptrdiff_t>(begin + length));
    experts.erase(kEmptySlot);
    distinct.push_back(static_cast<uint32_t>(experts.size()));
  }
  return distinct;
}

TEST(ExchangePlanTest, RestoreFillsEverySlotOnceAndCrossesToANodeOnce) {
  EXPECT_TRUE(rc::check([] {
    const AnyPlacement any = MakeAnyPlacement();
    const Topology& topology = any.topology;
    const uint32_t devices = topology.devices(), capacity = any.placement.capacity;
    Devices all(any);
    for (uint32_t d = 0; d < devices; ++d) {
      for (uint32_t e = 0; e < any.experts; ++e) {
        all.Put(d, {Memory::kShards, e}, Text("weight", e, d));
      }
    }
    all.Run(&ExchangePlan::restore);
    size_t filled = 0;
    for (uint32_t i = 0; i < devices * capacity; ++i) {
      const uint32_t expert = any.placement.slots[i];
      if (expert == kEmptySlot) continue;
      for (uint32_t chunk = 0; chunk < devices; ++chunk, ++filled) {
        const Chunk at{Memory::kSlots, i % capacity * devices + chunk};
        RC_ASSERT(all.At(i / capacity, at) == Text("weight", expert, chunk));
        RC_ASSERT((all.writes[{i / capacity, at}]) == 1u);
      }
    }
    RC_ASSERT(all.writes.size() == filled);

    // A device receives the other devices' chunks of every expert that it has.
    const std::vector<uint32_t> on_device = Distinct(any, capacity);
    for (uint32_t d = 0; d < devices; ++d) {
      RC_ASSERT(all.received[d] == on_device[d] * (devices - 1));
    }
    // Between nodes: a device receives, for every expert of its node, chunks of the other node's
    // devices.
    const std::vector<uint32_t> in_node = Distinct(any, capacity * topology.per_node);
    for (uint32_t a = 0; a < topology.nodes; ++a) {
      for (uint32_t b = 0; b < topology.nodes; ++b) {
        if (a != b) RC_ASSERT((all.sent[{a, b}]) == in_node[b] * topology.per_node);
      }
    }
  }));
}

TEST(ExchangePlanTest, ReduceAddsInTheStatedOrderAndCrossesFromANodeOnce) {
  EXPECT_TRUE(rc::check([] {
    const AnyPlacement any = MakeAnyPlacement();
    const Topology& topology = any.topology;
    const uint32_t devices = topology.devices(), capacity = any.placement.capacity;
    Devices all(any);
    for (uint32_t d = 0; d < devices; ++d) {
      for (uint32_t e = 0; e < any.experts; ++e) {
        all.Put(d, {Memory::kShards, e}, Text("grad", e, d));
      }
      for (uint32_t i = 0; i < capacity * devices; ++i) {
        all.Put(d, {Memory::kSlots, i},
                Text("d" + std::to_string(d) + "s", i / devices, i % devices));
      }
    }
    all.Run(&ExchangePlan::reduce);
    for (uint32_t d = 0; d < devices; ++d) {
      for (uint32_t e = 0; e < any.experts; ++e) {
        RC_ASSERT(all.At(d, {Memory::kShards, e}) == Reduced(any, e, d));
        RC_ASSERT((all.writes[{d, {Memory::kShards, e}}]) == 1u);
      }
    }
    const std::vector<uint32_t> in_node = Distinct(any, capacity * topology.per_node);
    for (uint32_t a = 0; a < topology.nodes; ++a) {
      for (uint32_t b = 0; b < topology.nodes; ++b) {
        if (a != b) RC_ASSERT((all.sent[{a, b}]) == in_node[a] * topology.per_node);
      }
    }
  }));
}

TEST(ExchangePlanTest, DevicesOfANodeForwardChunksInTurn) {
  // One expert is on all four devices of each node: each device forwards 3 of the 12 chunks of
  // other nodes.
  const AnyPlacement any{{4, 4}, 1, {1, std::vector<uint32_t>(16, 0)}};
  Devices all(any);
  for (uint32_t d = 0; d < 16; ++d) all.Put(d, {Memory::kShards, 0}, Text("weight", 0, d));
  all.Run(&ExchangePlan::restore);
  for (uint32_t d = 0; d < 16; ++d) EXPECT_EQ(all.sent_in_second[d], 3u * 3);
  // A flat all-to-all would send 12 chunks of other nodes to every device.
  uint32_t crossed = 0;
  for (const auto& [nodes, chunks] : all.sent) crossed += nodes.first != nodes.second ? chunks : 0;
  EXPECT_EQ(crossed * 4, 16u * 12);
}

}  // namespace
}  // namespace rewire::moe::fsep
