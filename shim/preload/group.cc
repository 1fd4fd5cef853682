#include "shim/preload/group.h"

#include <algorithm>
#include <new>

#include "reconfig/base/cancellation.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/log.h"
#include "rewire_entries.h"
#include "shim/preload/core_loader.h"
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
  group->ended.clear();
  group->windows.clear();
}

// NCCL frees the ranks of one process when the last of them ends.
bool FreesAtItsEnd(const VirtualCommunicator* comm) {
  return !VisitCommunicators([comm](VirtualCommunicator* other) {
    const Inside inside(other);
    const Generation* generation = inside.generation();
    // A communicator under creation may have no identity yet.
    const bool made =
        generation != nullptr && generation->device.load(std::memory_order_acquire) >= 0;
    return made && other->id() == comm->id() && !other->closing.load(std::memory_order_acquire);
  });
}

// Waits until no other thread is inside a generation that the end of the group frees: the abort has
// set the flags, so that a blocked thread returns within milliseconds. Without the wait, NCCL frees
// under a thread that waits in a blocking call for a peer, such as a peer that has aborted before
// it connected the generation.
void AwaitOthers(const GroupState* group) {
  // The limit excludes a thread that a device holds, or that keeps a group open, for longer.
  constexpr milliseconds kLeave(10000);
  const PostponedCancellation postponed;
  const Time deadline = Now() + kLeave;
  for (const EndedInGroup& ended : group->ended) {
    if (ended.aborted == nullptr || !FreesAtItsEnd(ended.comm)) continue;
    const auto mine = std::count_if(group->uses.begin(), group->uses.end(),
                                    [&](const auto& u) { return u.generation == ended.aborted; }) +
                      std::count(group->held.begin(), group->held.end(), ended.aborted);
    const auto rest = std::chrono::duration_cast<milliseconds>(deadline - Now()).count();
    if (QuiesceOthers(ended.aborted, static_cast<uint64_t>(mine), std::max<int64_t>(rest, 0))) {
      continue;
    }
    REWIRE_WARN("abort a communicator: a thread did not leave NCCL within %lld ms",
                static_cast<long long>(kLeave.count()));
  }
}

}  // namespace

void HoldInGroup(GroupState* group, Generation* generation) {
  const auto end = group->held.end();
  if (std::find(group->held.begin(), end, generation) != end) return;
  group->held.push_back(generation);
  generation->fixed.fetch_add(1, std::memory_order_seq_cst);
}

void HoldInOpenGroup(Generation* generation) {
  ThreadSlot* slot = Slot();
  if (slot->group_depth == 0) return;
  if (GroupState* group = ThisGroup(slot)) HoldInGroup(group, generation);
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
  for (const EndedInGroup& ended : group->ended) DropCommunicator(ended.comm, ended.aborted);
  Clear(group);
}

void AbandonGroup(ThreadSlot* slot) noexcept {
  slot->group_depth = 0;
  if (slot->group != nullptr) SettleGroup(slot, false);
}

void ForgetGroup(GroupState* group) noexcept { Clear(group); }

namespace {

// NCCL launches on all communicators of the group at its outermost end.
class CallingOnGroup {
 public:
  explicit CallingOnGroup(const ThreadSlot* slot) {
    if (slot->group_depth != 1 || slot->group == nullptr) return;
    for (const GroupUse& use : slot->group->uses) {
      if (!use.comm->recipe.blocking) callers_.push_back(&use.generation->callers);
    }
    for (Generation* generation : slot->group->held) callers_.push_back(&generation->callers);
    for (Callers* callers : callers_) callers->Enter();
  }
  ~CallingOnGroup() {
    for (Callers* callers : callers_) callers->Leave();
  }
  CallingOnGroup(const CallingOnGroup&) = delete;
  CallingOnGroup& operator=(const CallingOnGroup&) = delete;

 private:
  std::vector<Callers*> callers_;
};

// Returns ncclRemoteError when a generation of the group was aborted, and otherwise `result`.
ncclResult_t FailedGroup(const GroupState* group, ncclResult_t result) {
  if (group == nullptr) return result;
  const auto aborted = [](const Generation* generation) {
    return generation->state.load(std::memory_order_acquire) == GenerationState::kAborted;
  };
  for (const GroupUse& use : group->uses) {
    if (aborted(use.generation)) return ncclRemoteError;
  }
  for (const Generation* generation : group->held) {
    if (aborted(generation)) return ncclRemoteError;
  }
  return result;
}

void PinCaptured(const GroupState* group) {
  if (group == nullptr) return;
  for (const GroupUse& use : group->uses) {
    if (use.captured) shim::PinCaptured(use.comm);
  }
}

// The free memory of the devices on which NCCL connects ranks at the group's end. What several
// communicators of one device take counts for the first of them.
class MemoryOfGroup {
 public:
  explicit MemoryOfGroup(const ThreadSlot* slot) {
    if (slot->group_depth != 1 || slot->group == nullptr) return;
    for (const GroupUse& use : slot->group->uses) {
      if (!use.first || IsMeasured(use.generation->device.load())) continue;
      const uint64_t free_before = FreeBeforeFirst(use.comm, use.stream);
      if (free_before != 0) before_.push_back({use.comm, use.generation->device, free_before});
    }
  }
  void TellTaken() const {
    for (const Before& each : before_) shim::TellTaken(each.comm, each.free_bytes);
  }

 private:
  struct Before {
    VirtualCommunicator* comm;
    int device;
    uint64_t free_bytes;
  };
  [[nodiscard]] bool IsMeasured(int device) const {
    return std::any_of(before_.begin(), before_.end(),
                       [&](const Before& each) { return each.device == device; });
  }

  std::vector<Before> before_;
};

template <typename End>
ncclResult_t EndGroup(bool counts, End&& end) {
  ThreadSlot* slot = Slot();
  // NCCL judges the end of a group whose start the shim has not seen.
  if (slot->group_depth == 0) return end();
  const bool ends = slot->group_depth == 1 && slot->group != nullptr && !slot->group->ended.empty();
  if (ends) [[unlikely]]
    AwaitOthers(slot->group);
  const MemoryOfGroup memory(slot);
  ncclResult_t result = [&] {
    const CallingOnGroup calling(slot);
    return end();
  }();
  if (!Taken(result)) result = FailedGroup(slot->group, result);
  if (result == ncclSuccess) memory.TellTaken();
  // NCCL leaves the group level even when the operations failed.
  if (--slot->group_depth == 0) {
    if (counts && !Rejected(result)) PinCaptured(slot->group);
    SettleGroup(slot, counts && Taken(result));
  }
  return result;
}

}  // namespace

namespace entry {

ncclResult_t GroupStart() {
  const ncclResult_t result = Real()->GroupStart();
  if (result == ncclSuccess) ++Slot()->group_depth;
  return result;
}

ncclResult_t GroupEnd() {
  return EndGroup(true, [] { return Real()->GroupEnd(); });
}

ncclResult_t GroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return EndGroup(false, [&] { return Real()->GroupSimulateEnd(simInfo); });
}

}  // namespace entry
}  // namespace rewire::shim
