// The choice of the version to go back to; see restore_choice.h. Pure; any thread.
#include "reconfig/transition/restore_choice.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"

namespace rewire {
namespace {

// The versions at which the shard of `slot` can be had.
std::set<uint64_t> Versions(const World& from, size_t slot,
                            const std::map<MemberId, AtBoundary>& reports) {
  std::set<uint64_t> versions;
  if (const auto owner = reports.find(from.members[slot].member); owner != reports.end()) {
    if (owner->second.live_whole) versions.insert(owner->second.live_version);
    versions.insert(owner->second.own_snapshots.begin(), owner->second.own_snapshots.end());
  }
  const size_t next = (slot + 1) % from.members.size();
  if (const auto buddy = reports.find(from.members[next].member);
      next != slot && buddy != reports.end()) {
    versions.insert(buddy->second.buddy_snapshots.begin(), buddy->second.buddy_snapshots.end());
  }
  return versions;
}

}  // namespace

absl::StatusOr<RestoreChoice> ChooseVersion(const World& from,
                                            const std::map<MemberId, AtBoundary>& reports) {
  std::set<uint64_t> common;
  for (size_t slot = 0; slot < from.members.size(); ++slot) {
    const std::set<uint64_t> versions = Versions(from, slot, reports);
    if (versions.empty()) {
      return absl::DataLossError(
          absl::StrCat("the state of slot ", slot, " (member ", from.members[slot].member,
                       ") exists nowhere any more: its owner is lost and slot ",
                       (slot + 1) % from.members.size(), " has no copy"));
    }
    if (slot == 0) {
      common = versions;
    } else {
      std::erase_if(common, [&](uint64_t v) { return !versions.contains(v); });
    }
    if (common.empty()) {
      return absl::DataLossError(absl::StrCat("the copies of slot ", slot, " (member ",
                                              from.members[slot].member,
                                              ") have no version in common with the slots below"));
    }
  }
  RestoreChoice choice{*common.rbegin(), {}};
  for (const auto& [member, report] : reports) {
    if (report.live_whole && report.live_version == choice.version) choice.live.push_back(member);
  }
  return choice;
}

}  // namespace rewire
