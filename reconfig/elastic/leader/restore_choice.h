// Chooses the version of the state to restore after a loss. Pure; for the leader.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

struct RestoreChoice {
  uint64_t version = 0;
  RestoreSources sources;
};

// Returns the highest version at which the reporting members can supply all state of `from`. The
// layout of a part decides which members can supply the part:
//   - State that exists once: the owner of its slot (in place or its own copies), or the copies
//     that the next slot keeps.
//   - Replicated constant state: any member that has it in place; or, when it is copied, pieces
//     from the copies of all slots.
//   - Replicated volatile state: any member's own copies.
// Otherwise: an error that names the part without a copy, or the versions of the parts.
absl::StatusOr<RestoreChoice> ChooseVersion(const World& from,
                                            const std::map<MemberId, AtBoundary>& reports);

}  // namespace rewire::elastic
