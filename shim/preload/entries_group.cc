// The group entries. The shim counts the group depth itself, so that no communicator changes its
// generation inside a group. State is per thread.
#include <vector>

#include "rewire_entries.h"
#include "shim/preload/issue.h"

namespace rewire::shim::entry {

ncclResult_t GroupStart() {
  const ncclResult_t result = Real()->GroupStart();
  if (result == ncclSuccess) ++Slot()->group_depth;
  return result;
}

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

template <typename End>
ncclResult_t EndGroup(bool counts, End&& end) {
  ThreadSlot* slot = Slot();
  // NCCL judges the end of a group whose start the shim has not seen.
  if (slot->group_depth == 0) return end();
  const ncclResult_t result = [&] {
    const CallingOnGroup calling(slot);
    return end();
  }();
  // NCCL leaves the group level even when the operations failed.
  if (--slot->group_depth == 0) SettleGroup(slot, counts && Taken(result));
  return result;
}

}  // namespace

ncclResult_t GroupEnd() {
  return EndGroup(true, [] { return Real()->GroupEnd(); });
}

ncclResult_t GroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return EndGroup(false, [&] { return Real()->GroupSimulateEnd(simInfo); });
}

}  // namespace rewire::shim::entry
