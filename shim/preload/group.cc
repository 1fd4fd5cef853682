#include "shim/preload/group.h"

#include <new>

#include "shim/preload/creation.h"
#include "shim/preload/issue.h"
#include "shim/preload/pool.h"
#include "shim/preload/thread_slot.h"

namespace rewire::shim {

GroupState* ThisGroup(ThreadSlot* slot) noexcept {
  if (slot->group == nullptr) slot->group = new (std::nothrow) GroupState;
  return slot->group;
}

namespace {

void Count(const GroupUse& use) {
  const uint64_t before = use.comm->issued.load(std::memory_order_relaxed);
  const uint64_t after = before + use.operations;
  use.comm->issued.store(after, std::memory_order_relaxed);
  use.comm->last_stream.store(use.stream, std::memory_order_relaxed);
  const uint64_t stop_at = use.comm->stop_at.load(std::memory_order_relaxed);
  if (before < stop_at && stop_at <= after) BeforeCut(use.comm, use.stream);
}

// When the group has ended, NCCL has made the windows of a blocking communicator.
void TakeWindows(VirtualCommunicator* comm) {
  const Inside inside(comm);
  if (comm->recipe.blocking && inside.generation() != nullptr) {
    comm->registrations.TakeStored(inside.generation()->values);
  }
}

void Clear(GroupState* group) noexcept {
  group->uses.clear();
  group->last_use = 0;
  group->held.clear();
  group->created.clear();
  group->destroyed.clear();
  group->windows.clear();
}

}  // namespace

void HoldInGroup(GroupState* group, Generation* generation) {
  group->held.push_back(generation);
  generation->fixed.fetch_add(1, std::memory_order_seq_cst);
}

void SettleGroup(ThreadSlot* slot, bool taken) noexcept {
  GroupState* group = slot->group;
  if (group == nullptr) return;
  if (taken) {
    for (const GroupUse& use : group->uses) Count(use);
  }
  for (VirtualCommunicator* comm : group->windows) TakeWindows(comm);
  for (const GroupUse& use : group->uses) {
    use.generation->fixed.fetch_sub(1, std::memory_order_seq_cst);
  }
  if (taken) {
    for (VirtualCommunicator* comm : group->created) NoteIfReady(comm);
  }
  for (Generation* generation : group->held) {
    generation->fixed.fetch_sub(1, std::memory_order_seq_cst);
  }
  for (VirtualCommunicator* comm : group->destroyed) DropCommunicator(comm);
  Clear(group);
}

void AbandonGroup(ThreadSlot* slot) noexcept {
  slot->group_depth = 0;
  if (slot->group != nullptr) SettleGroup(slot, false);
}

void ForgetGroup(GroupState* group) noexcept { Clear(group); }

}  // namespace rewire::shim
