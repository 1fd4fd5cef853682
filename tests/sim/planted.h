// The planted bugs by name, for tests and the command line. Pure; thread-safe.
#pragma once

#include <string_view>
#include <utility>

#include "reconfig/elastic/protocol/planted_bug.h"

namespace rewire::sim {

inline constexpr std::pair<std::string_view, PlantedBug> kPlantedBugs[] = {
    {"double-commit", PlantedBug::kDoubleCommit},
    {"lost-pledge", PlantedBug::kLostPledge},
    {"commit-before-verified", PlantedBug::kCommitBeforeVerified},
    {"stale-epoch-accepted", PlantedBug::kStaleEpochAccepted},
    {"silence-of-all", PlantedBug::kSilenceOfAll},
    {"stall-counts", PlantedBug::kStallCounts},
    {"dismissal-ends-job", PlantedBug::kDismissalEndsJob},
    {"all-cuts-to-all", PlantedBug::kAllCutsToAll},
    {"pending-overwritten", PlantedBug::kPendingOverwritten},
};

inline bool PlantedBugNamed(std::string_view name, PlantedBug* out) {
  for (const auto& [known, bug] : kPlantedBugs) {
    if (known == name) {
      *out = bug;
      return true;
    }
  }
  return false;
}

}  // namespace rewire::sim
