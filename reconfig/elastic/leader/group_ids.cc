#include "reconfig/elastic/leader/group_ids.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/world/identity.h"

namespace rewire::elastic {

std::optional<uint32_t> PlaceIn(const MintedGroup& group, uint32_t slot) {
  const auto at = std::lower_bound(group.slots.begin(), group.slots.end(), slot);
  if (at == group.slots.end() || *at != slot) return std::nullopt;
  return static_cast<uint32_t>(at - group.slots.begin());
}

CommunicatorId IdentityOf(const MintedGroup& group) {
  return IdentityOfUniqueId(group.unique_id.data());
}

void GroupIds::Expect(std::set<std::string> names, uint32_t slots) {
  slots_ = slots;
  groups_.clear();
  for (const std::string& name : names) groups_[name];
}

std::string GroupIds::Add(const std::string& name, const Minted& minted) {
  const auto wrong = [&](const std::string& reason) {
    return absl::StrCat("group communicator ", name, ": slots=", absl::StrJoin(minted.slots, ","),
                        ": ", reason);
  };
  const auto known = groups_.find(name);
  if (known == groups_.end()) {
    return wrong("no member of the world has a communicator of this name");
  }
  const bool ordered = std::adjacent_find(minted.slots.begin(), minted.slots.end(),
                                          std::greater_equal<>()) == minted.slots.end();
  if (minted.slots.empty() || !ordered || minted.slots.back() >= slots_) {
    return wrong(absl::StrCat("must be ascending and below ", slots_));
  }
  if (minted.unique_id.size() < NCCL_UNIQUE_ID_BYTES) {
    return wrong(absl::StrCat("unique id: bytes=", minted.unique_id.size(), ": must be at least ",
                              NCCL_UNIQUE_ID_BYTES));
  }
  for (const MintedGroup& group : known->second) {
    for (const uint32_t slot : minted.slots) {
      if (!PlaceIn(group, slot)) continue;
      return wrong(absl::StrCat("another member says that slot ", slot, " is in the group ",
                                absl::StrJoin(group.slots, ","),
                                " (rewireGroupId() must have the same axes on all members)"));
    }
  }
  known->second.push_back({minted.unique_id, minted.slots});
  return "";
}

std::string GroupIds::Missing() const {
  for (const auto& [name, groups] : groups_) {
    std::set<uint32_t> minted;
    for (const MintedGroup& group : groups) minted.insert(group.slots.begin(), group.slots.end());
    if (minted.size() == slots_) continue;
    std::vector<uint32_t> missing;
    for (uint32_t slot = 0; slot < slots_; ++slot) {
      if (!minted.contains(slot)) missing.push_back(slot);
    }
    return absl::StrCat("no unique id of group communicator ", name, " for slot ",
                        absl::StrJoin(missing, ", "));
  }
  return "";
}

}  // namespace rewire::elastic
