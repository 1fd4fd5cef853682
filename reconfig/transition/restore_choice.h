// Which version of the state a world can be brought back to after a loss. Pure; used by the leader.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/transition/messages.h"

namespace rewire {

struct RestoreChoice {
  uint64_t version = 0;
  std::vector<MemberId> live;  // whose state in place has this version, whole
};

// The highest version at which every shard of `from` has a whole copy among the survivors' reports:
// in place on its owner, in its owner's snapshot, or in the buddy snapshot of the next slot. None:
// an error that names the first shard without a copy, or the shards that have no version in common.
absl::StatusOr<RestoreChoice> ChooseVersion(const World& from,
                                            const std::map<MemberId, AtBoundary>& reports);

}  // namespace rewire
