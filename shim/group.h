// What one thread has done in the ncclGroup it is in: which generation each communicator was fixed
// to, and what has to follow the group's end. Belongs to its thread; kept for the thread's next
// group.
#pragma once

#include <cstdint>
#include <vector>

#include "shim/registration.h"
#include "shim/virtual_communicator.h"

namespace rewire::shim {

struct ThreadSlot;

struct GroupUse {
  VirtualCommunicator* comm;
  Generation* generation;  // counted in its `fixed` until the group ends
  uint64_t operations;     // collectives taken so far
  cudaStream_t stream;     // of the last operation
};

struct GroupState {
  std::vector<GroupUse> uses;
  uint32_t last_use = 0;
  std::vector<VirtualCommunicator*> created;  // in this group; there when it has ended
  // What NCCL works on at the group's end without being used in the group: parents of a split, and
  // generations under creation. Counted in their `fixed` until the group ends.
  std::vector<Generation*> held;
  std::vector<VirtualCommunicator*> destroyed;  // handles that become stale when it has ended
  std::vector<VirtualCommunicator*> windows;    // asked for in this group
};

// nullptr: not used in this group yet (or no group).
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

// The thread's group state; made at its first group. nullptr: no memory.
GroupState* ThisGroup(ThreadSlot* slot) noexcept;
// Adds a generation to `held`.
void HoldInGroup(GroupState* group, Generation* generation);
// After the outermost end. taken: NCCL has taken the group's operations, so they count.
void SettleGroup(ThreadSlot* slot, bool taken) noexcept;
// The thread ended inside a group, or the process forked there.
void AbandonGroup(ThreadSlot* slot) noexcept;
void ForgetGroup(GroupState* group) noexcept;

}  // namespace rewire::shim
