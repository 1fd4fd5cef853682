// The members that give their state back after a loss. A plain value.
#pragma once

#include <vector>

#include "reconfig/world/world.h"

namespace rewire {

// The members from which a version of the state is restored.
struct RestoreSources {
  std::vector<MemberId> live;   // members whose state in place is whole at this version
  std::vector<MemberId> own;    // members with the copies of their own slot
  std::vector<MemberId> buddy;  // members with the copies of the previous slot
  bool operator==(const RestoreSources&) const = default;
};

}  // namespace rewire
