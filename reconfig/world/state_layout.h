// A summary for the leader of the slots that have a world's state. A plain value.
#pragma once

#include <cstdint>
#include <vector>

namespace rewire {

// The parts of a world's state that exist once, that are replicated, and that are copied. Follows
// from the tensors' layouts, so the value is equal on all members of the world.
struct StateLayout {
  bool replicated = false;  // some state is constant between updates and on every slot
  // Some state is volatile and on every slot: each member's own copies have all of it.
  bool replicated_volatile = false;
  std::vector<uint32_t> sharded;  // slots with state that exists once
  std::vector<uint32_t> pieces;   // slots whose copies have a piece of the replicated state
  bool operator==(const StateLayout&) const = default;
};

}  // namespace rewire
