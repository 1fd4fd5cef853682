// Unique ids of group communicators: rewireGroupId() of the C interface, on the program's thread,
// and the ids that a change of members needs.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/participant/context.h"
#include "reconfig/elastic/participant/participant.h"
#include "reconfig/elastic/participant/process.h"
#include "reconfig/state/topo/slot_groups.h"
#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

absl::StatusOr<std::vector<uint32_t>> GroupOf(const state::Parallel& parallel,
                                              const std::string& axes, uint32_t slot) {
  REWIRE_ASSIGN_OR_RETURN(const state::SlotGroups groups, state::SlotGroups::Along(parallel, axes));
  return groups.GroupOf(slot);
}

}  // namespace

absl::StatusOr<UniqueIdBytes> Participant::GroupId(const std::string& name, const std::string& axes,
                                                   rewireGroup_t* group) {
  const WorldView view = View();
  if (!view.slot) return absl::FailedPreconditionError("this member is not in the world");
  const std::vector<WorldMember>& members = view.world.members;
  REWIRE_ASSIGN_OR_RETURN(const state::Parallel parallel,
                          state_.ParallelOf(static_cast<uint32_t>(members.size())));
  REWIRE_ASSIGN_OR_RETURN(const std::vector<uint32_t> slots, GroupOf(parallel, axes, *view.slot));
  REWIRE_ASSIGN_OR_RETURN(const GroupCommunicators::Making making, groups_.Next(name, axes));
  const auto own = std::find(slots.begin(), slots.end(), *view.slot);
  // The generation of a joiner's communicator comes with the change that adds the joiner, whose id
  // therefore only names the communicator in this process.
  const bool mints = view.joining || own == slots.begin();
  REWIRE_ASSIGN_OR_RETURN(
      UniqueIdBytes id,
      names_.Resolve(making.key, {members[slots.front()]}, mints ? MintUniqueId : Names::Minter{},
                     Now() + options_.build, [&] {
                       if (!gate_.broken()) return absl::OkStatus();
                       return absl::UnavailableError("a member was lost meanwhile");
                     }));
  groups_.Made(name, axes, making.number, id);
  *group = {group->size, static_cast<uint32_t>(slots.size()),
            static_cast<uint32_t>(own - slots.begin())};
  return id;
}

absl::Status Participant::MintGroups(const MakePlan& action) {
  const std::optional<uint32_t> own = action.to.SlotOf(options_.member);
  if (!own || action.groups.empty()) return absl::OkStatus();
  // A joiner has no layout of its tensors before its first update, and may need a communicator
  // until then.
  REWIRE_ASSIGN_OR_RETURN(const state::Parallel parallel,
                          state_.ParallelOf(static_cast<uint32_t>(action.to.members.size())));
  for (const auto& [name, id] : action.groups) {
    const absl::StatusOr<std::vector<uint32_t>> slots =
        GroupOf(parallel, groups_.AxesOf(name), *own);
    if (!slots.ok()) {
      return absl::Status(slots.status().code(), absl::StrCat("group communicator ", name, ": ",
                                                              slots.status().message()));
    }
    const auto old = std::find_if(slots->begin(), slots->end(), [&](uint32_t slot) {
      return action.from.SlotOf(action.to.members[slot].member).has_value();
    });
    if (*(old == slots->end() ? slots->begin() : old) != *own) continue;
    inbox_->Post(
        [epoch = action.epoch, id = id, slots = *slots](Member* m, Time t, Member::Out* out) {
          absl::StatusOr<UniqueIdBytes> minted = absl::FailedPreconditionError(
              "make a unique id of a group: this process has no communicators");
          if (Communicators* const comms = GetCommunicators()) minted = comms->Mint(id);
          m->OnMinted(t, epoch, id, slots, minted, out);
        });
  }
  return absl::OkStatus();
}

}  // namespace rewire::elastic

extern "C" rewireResult_t rewireGroupId(rewireContext_t context, const char* name, const char* axes,
                                        rewireGroup_t* group, void* id128) noexcept {
  const rewire::PostponedCancellation postponed;
  const rewireResult_t wrong = rewire::elastic::ContextArguments("rewireGroupId")
                                   .Context(context)
                                   .NotNull("name", name)
                                   .NotNull("axes", axes)
                                   .Sized("group", "rewireGroup_t", group)
                                   .NotNull("id128", id128)
                                   .result();
  if (wrong != rewireSuccess) return wrong;
  if (*name == '\0' || strlen(name) > rewire::elastic::kMaxGroupBytes) {
    return rewire::Fail(rewireInvalidArgument,
                        absl::StrCat("rewireGroupId: name must have 1 to ",
                                     rewire::elastic::kMaxGroupBytes, " bytes"));
  }
  if (context->participant == nullptr) {
    return rewire::Fail(rewireUnavailable,
                        "rewireGroupId: there is no agent (REWIRE_SOCKET is not set)");
  }
  if (const rewireResult_t gone = rewire::elastic::StillMember("rewireGroupId", *context);
      gone != rewireSuccess) {
    return gone;
  }
  if (!context->parallel_set) {
    return rewire::Fail(rewireInvalidUsage,
                        "rewireGroupId: must be called after rewireSetParallel(), which says how "
                        "the slots are divided");
  }
  const auto id = context->participant->GroupId(name, axes, group);
  if (!id.ok()) {
    return rewire::Fail(
        absl::Status(id.status().code(),
                     absl::StrCat("rewireGroupId: name=", name, ": ", id.status().message())));
  }
  memcpy(id128, id->data(), id->size());
  return rewireSuccess;
}
