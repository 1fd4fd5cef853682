// The state of one thread's current ncclGroup: the generation that each communicator is fixed to,
// and the work that follows the group's end. Owned by its thread, and reused for the thread's next
// group. group.cc also has the group entries: the shim counts the group depth itself, so that no
// communicator changes its generation inside a group.
#pragma once

#include <cstdint>
#include <vector>

#include "shim/preload/registration_list.h"
#include "shim/preload/virtual_communicator.h"

namespace rewire::shim {

struct ThreadSlot;

struct GroupUse {
  VirtualCommunicator* comm;
  Generation* generation;  // counted in its `fixed` until the group ends
  uint64_t operations;     // collectives taken so far
  cudaStream_t stream;     // stream of the last operation
  bool captured;           // the group has an operation on a stream that is being captured
  bool first;              // the group has the first operation of a kind, a size class or a peer
};

// A communicator that the program has ended in the group.
struct EndedInGroup {
  VirtualCommunicator* comm;  // its handle becomes stale when the group ends
  Generation* aborted;        // NCCL frees its real communicator then; nullptr: no abort
};

struct GroupState {
  std::vector<GroupUse> uses;
  uint32_t last_use = 0;
  std::vector<VirtualCommunicator*> created;  // communicators that exist once the group has ended
  // Generations that NCCL uses at the group's end without an operation in the group: parents of a
  // split, generations under creation, and those of calls that NCCL defers. Each is counted in its
  // `fixed` until the group ends.
  std::vector<Generation*> held;
  std::vector<EndedInGroup> ended;
  std::vector<VirtualCommunicator*> windows;  // communicators whose windows the group makes
};

// Returns nullptr outside a group, or when this group has not used the communicator yet.
inline GroupUse* FindUse(GroupState* group, const VirtualCommunicator* comm) noexcept {
  if (group == nullptr || group->uses.empty()) return nullptr;
  GroupUse* uses = group->uses.data();
  if (uses[group->last_use].comm == comm) [[likely]] {
    return &uses[group->last_use];
  }
  for (uint32_t i = 0; i < group->uses.size(); ++i) {
    if (uses[i].comm == comm) {
      group->last_use = i;
      return &uses[i];
    }
  }
  return nullptr;
}

// Returns the thread's group state, made at its first group. Returns nullptr without memory.
GroupState* ThisGroup(ThreadSlot* slot) noexcept;
// NCCL uses the generation at the end of the group. Has no effect the second time.
void HoldInGroup(GroupState* group, Generation* generation);
// Does HoldInGroup() if the calling thread has an open group.
void HoldInOpenGroup(Generation* generation);
// Runs after the outermost end. taken: NCCL has taken the group's operations, so they count.
void SettleGroup(ThreadSlot* slot, bool taken) noexcept;
// Drops the state of a group whose thread has ended, or whose process has forked inside the group.
void AbandonGroup(ThreadSlot* slot) noexcept;
void ForgetGroup(GroupState* group) noexcept;

}  // namespace rewire::shim
