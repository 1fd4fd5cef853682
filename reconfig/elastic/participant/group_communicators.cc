#include "reconfig/elastic/participant/group_communicators.h"

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/participant/names.h"
#include "reconfig/world/identity.h"

namespace rewire::elastic {

void GroupCommunicators::EnterWorld(Epoch epoch) {
  MutexLock lock(&mutex_);
  epoch_ = epoch;
  ids_.clear();
  for (auto& [name, group] : groups_) group.made = 0;
}

absl::StatusOr<GroupCommunicators::Making> GroupCommunicators::Next(const std::string& name,
                                                                    const std::string& axes) const {
  MutexLock lock(&mutex_);
  const auto known = groups_.find(name);
  if (known != groups_.end() && known->second.axes != axes) {
    return absl::InvalidArgumentError(absl::StrCat("axes=", axes, ": must be ", known->second.axes,
                                                   " as in the first call with ", "name=", name,
                                                   " (another communicator needs another name)"));
  }
  const uint32_t number = known == groups_.end() ? 1 : known->second.made + 1;
  return Making{absl::StrCat(absl::string_view(kGroupName.data(), kGroupName.size()), " ", name,
                             ", number ", number, " since epoch ", epoch_),
                number};
}

void GroupCommunicators::Made(const std::string& name, const std::string& axes, uint32_t number,
                              const UniqueIdBytes& id) {
  MutexLock lock(&mutex_);
  groups_[name] = {axes, number};
  ids_[IdentityOfUniqueId(id.data())] = {name, number};
}

void GroupCommunicators::Describe(CommunicatorCreated* created) const {
  MutexLock lock(&mutex_);
  const auto known = ids_.find(created->communicator);
  if (known == ids_.end()) return;
  created->group = known->second.first;
  created->creation = known->second.second;
}

std::string GroupCommunicators::AxesOf(const std::string& name) const {
  MutexLock lock(&mutex_);
  const auto known = groups_.find(name);
  return known == groups_.end() ? "" : known->second.axes;
}

}  // namespace rewire::elastic
