// What a rank sends, receives, copies and adds to restore fully sharded experts by a placement, and
// to bring their gradients back (FSEP of LAER-MoE, arXiv 2602.11686). Pure, ties to the lowest
// number, so that all ranks derive plans that fit each other; any thread.
//
// Every expert is cut into as many chunks as there are devices, and device r owns chunk r of each
// expert. A slot of a device holds a whole expert: chunk r of slot s is at s * devices + r.
// A chunk crosses to a node once, however many of the node's slots want it: one of the devices that
// do receives it there and hands it on. Gradients go the same way back: what a device's slots hold
// of an expert is added in the order of the slots, what the devices of a node hold in the order of
// the devices, and to the owner's chunk the sums of the nodes in the order of the nodes.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/moe/placement.h"
#include "reconfig/moe/topology.h"

namespace rewire::moe::fsep {

enum class Memory : uint8_t {
  kShards = 0,   // the rank's own chunks, by expert
  kSlots = 1,    // its slots
  kStaging = 2,  // what it adds up
};

// The index counts chunks.
struct Chunk {
  Memory memory = Memory::kShards;
  uint32_t index = 0;
  friend auto operator<=>(const Chunk&, const Chunk&) = default;
};

struct Message {
  uint32_t peer = 0;
  Chunk chunk;
};
struct Copy {
  Chunk from, to;
  uint32_t chunks = 1;
};
// `to` becomes from[0] + from[1] + ..., added in this order; it may be one of them.
struct Sum {
  Chunk to;
  std::vector<Chunk> from;
};

// Copies, then sums, then all messages in one group. Messages between two ranks are in the same
// order in the sender's list and in the receiver's.
struct Step {
  std::vector<Copy> copies;
  std::vector<Sum> sums;
  std::vector<Message> sends, receives;
};

struct ExchangePlan {
  std::vector<Step> restore;  // fills the slots from everybody's shards
  // Adds the slots' gradients to the shards'. What the slots hold afterwards is of no use.
  std::vector<Step> reduce;
};

// Of a placement that Check() accepts, for one rank.
[[nodiscard]] ExchangePlan PlanExchange(const Topology& topology, const Placement& placement,
                                        uint32_t rank);

// Chunks of staging that no plan of these shapes goes beyond.
[[nodiscard]] uint32_t StagingChunks(const Topology& topology, uint32_t capacity);

}  // namespace rewire::moe::fsep
