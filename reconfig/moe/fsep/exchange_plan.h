// Plans the sends, receives, copies and sums of one rank that restore fully sharded experts
// according to a placement and reduce their gradients (FSEP of LAER-MoE, arXiv 2602.11686). Ties go
// to the lowest number, so the plans of all ranks match. Pure functions: thread-safe.
//
// Every expert is cut into one chunk per device, and device r owns chunk r of each expert. A slot
// of a device holds a whole expert: chunk r of slot s is at s * devices + r. A chunk is sent to
// each other node once, for all slots of that node with the expert: one device with such a slot
// receives and forwards the chunk. Gradients take the same way back and are added in a fixed order.
// First a device adds its slots in the order of the slots. Then a node adds its devices in the
// order of the devices. Last, the owner's chunk gets the sums of the nodes in their order.
#pragma once

#include <cstdint>
#include <vector>

#include "reconfig/moe/plan/placement.h"

namespace rewire::moe::fsep {

enum class Memory : uint8_t {
  kShards = 0,   // the rank's own chunks, by expert
  kSlots = 1,    // the device's slots
  kStaging = 2,  // partial sums and their inputs
};

// `index` counts chunks.
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
// `to` becomes from[0] + from[1] + ..., added in this order; `to` may be one of `from`.
struct Sum {
  Chunk to;
  std::vector<Chunk> from;
};

// A step runs its copies, then its sums, then all messages in one group. Messages between two ranks
// are in the same order in the sender's list and in the receiver's.
struct Step {
  std::vector<Copy> copies;
  std::vector<Sum> sums;
  std::vector<Message> sends, receives;
};

struct ExchangePlan {
  std::vector<Step> restore;  // fills the slots from all ranks' shards
  // Adds the slots' gradients to the shards'; the slots' contents are undefined afterwards.
  std::vector<Step> reduce;
};

// Plans for one rank; `placement` has passed Check().
[[nodiscard]] ExchangePlan PlanExchange(const Topology& topology, const Placement& placement,
                                        uint32_t rank);

// Returns the staging chunks that suffice for every plan of these shapes.
[[nodiscard]] uint32_t StagingChunks(const Topology& topology, uint32_t capacity);

}  // namespace rewire::moe::fsep
