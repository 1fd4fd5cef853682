// The phases of a job and of its current transition (docs/protocol.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace rewire::elastic {

enum class Phase : uint8_t {
  kForming = 0,     // no world yet: initial members are awaited
  kRecovering = 1,  // this leader has just started: members of the stored world are awaited
  kSteady = 2,      // no transition
  // PREPARE, first half: epoch noted in the store, processes started, joiners awaited.
  kReserve = 3,
  kPrepare = 4,     // PREPARE: generations built and plans made, up to READY
  kPropose = 5,     // READY: pledges are collected
  kArmed = 6,       // members come to the boundary (a loss: since Lost was sent)
  kAtBoundary = 7,  // all there: the rest is streamed, then STREAMED and VERIFIED
  // VERIFIED: the store has the compare-and-swap; the leader cannot go back by itself.
  kCommitting = 8,
  kCommitted = 9,  // members enter the new epoch
  kRetiring = 10,  // all entered: old generations are destroyed
  kStopped = 11,   // the job ended, or this leader was deposed
};
std::string_view PhaseName(Phase phase);

}  // namespace rewire::elastic
