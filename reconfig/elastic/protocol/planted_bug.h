// Faults that tests plant into the state machines to show that the simulator notices them.
// Production code never sets one: the option that carries it defaults to kNone.
#pragma once

namespace rewire::elastic {

enum class PlantedBug {
  kNone,
  kDoubleCommit,          // leader: commits without comparing, and a successor does not fence
  kLostPledge,            // leader: counts a refused pledge as given
  kCommitBeforeVerified,  // leader: commits as soon as everyone is at the boundary
  kStaleEpochAccepted,    // both: take messages of an earlier attempt for the current one
  kSilenceOfAll,          // leader: a member is lost when silent, even if all others are
  kStallCounts,           // leader: deadlines come nearer while its process stands still
  kDismissalEndsJob,      // leader: ends the job when it dismisses a process that was to join
  kAllCutsToAll,          // leader: proposes cuts also to members without the communicator
  kPendingOverwritten,    // member: a decided swap replaces any pending swap
  kPassedReplaced,        // member: lets a swap be replaced that the program has just passed
  kUpdateNotHeld,         // member: swaps at an update while the decision of a later swap is open
  kRetiredInBuild,        // leader: has generations destroyed while members build
};

}  // namespace rewire::elastic
