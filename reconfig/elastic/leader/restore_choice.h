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

// Returns the highest version at which the reporting members can supply all state of `from`
// (StateNeed). Otherwise: an error that names the part without a copy, or the versions of the
// parts.
absl::StatusOr<RestoreChoice> ChooseVersion(const World& from,
                                            const std::map<MemberId, AtBoundary>& reports);

}  // namespace rewire::elastic
