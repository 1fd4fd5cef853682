// The planted bugs by name, for tests and the command line. Pure; thread-safe.
#pragma once

#include <string_view>
#include <utility>

#include "reconfig/elastic/protocol/planted_bug.h"

namespace rewire::sim {

inline constexpr std::pair<std::string_view, elastic::PlantedBug> kPlantedBugs[] = {
    {"double-commit", elastic::PlantedBug::kDoubleCommit},
    {"lost-pledge", elastic::PlantedBug::kLostPledge},
    {"commit-before-verified", elastic::PlantedBug::kCommitBeforeVerified},
    {"stale-epoch-accepted", elastic::PlantedBug::kStaleEpochAccepted},
    {"silence-of-all", elastic::PlantedBug::kSilenceOfAll},
    {"stall-counts", elastic::PlantedBug::kStallCounts},
    {"dismissal-ends-job", elastic::PlantedBug::kDismissalEndsJob},
    {"all-cuts-to-all", elastic::PlantedBug::kAllCutsToAll},
    {"pending-overwritten", elastic::PlantedBug::kPendingOverwritten},
    {"passed-replaced", elastic::PlantedBug::kPassedReplaced},
    {"update-not-held", elastic::PlantedBug::kUpdateNotHeld},
    {"retired-in-build", elastic::PlantedBug::kRetiredInBuild},
};

inline bool PlantedBugNamed(std::string_view name, elastic::PlantedBug* out) {
  for (const auto& [known, bug] : kPlantedBugs) {
    if (known == name) {
      *out = bug;
      return true;
    }
  }
  return false;
}

}  // namespace rewire::sim
