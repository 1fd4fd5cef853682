// Which version of the state a world can be brought back to after a loss. Pure; used by the leader.
#pragma once

#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/transition/messages.h"

namespace rewire {

struct RestoreChoice {
  uint64_t version = 0;
  RestoreSources sources;
};

// The highest version at which all state of `from` can be had from the members that report. Where a
// part can be had follows from its layout:
//   - state that exists once: from its slot's owner (in place or its own copies), or from the
//   copies
//     that the next slot keeps;
//   - replicated state that is constant: from any member that has it in place; or, where it is
//     copied, as pieces from the copies of all slots;
//   - replicated state that is volatile: from any member's own copies.
// No such version: an error that names the part without a copy, or what versions the parts have.
absl::StatusOr<RestoreChoice> ChooseVersion(const World& from,
                                            const std::map<MemberId, AtBoundary>& reports);

}  // namespace rewire
