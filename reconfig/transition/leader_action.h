// What the leader asks of the agent that runs it. Pure values, in the order in which they must be
// done.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/transition/messages.h"

namespace rewire {

// Where a transition is, in the words of design.md.
enum class Phase : uint8_t {
  kForming = 0,     // no world yet: initial members are awaited
  kRecovering = 1,  // this leader has just started: members of the stored world are awaited
  kSteady = 2,      // nothing under way
  kReserve =
      3,  // PREPARE, first half: epoch noted in the store, processes started, joiners awaited
  kPrepare = 4,     // PREPARE: generations built and plans made, up to READY
  kPropose = 5,     // READY: pledges are collected
  kArmed = 6,       // members come to the boundary (a loss: since Lost was sent)
  kAtBoundary = 7,  // all there: the rest is streamed, then STREAMED and VERIFIED
  kCommitting = 8,  // VERIFIED: the compare-and-swap is with the store; no way back by our own will
  kCommitted = 9,   // members enter the new epoch
  kRetiring = 10,   // all entered: old generations are destroyed
  kStopped = 11,    // the job ended, or this leader was deposed
};
std::string_view PhaseName(Phase phase);

enum class NoteKind : uint8_t {
  kProgress,  // the phase changed
  kFailed,    // a transition was aborted, or a request refused later
  kDone,      // a transition ended in its new world
  kMember,    // a member connected, was lost, finished, left
  kWarning,   // a deadline that cannot be met, a silent member, ...
  kJob,       // the world was formed, the job is done, the job is stopped
};

// Progress, for status, trace, metrics and the log. Never needed for correctness.
struct Note {
  uint64_t transition = 0;  // counts attempts of this leader; 0: about no transition
  Epoch epoch = 0;          // of the target
  TransitionKind transition_kind = TransitionKind::kSwap;
  Phase phase = Phase::kSteady;
  NoteKind kind = NoteKind::kProgress;
  std::vector<uint64_t> requests;  // ids of the requests that this is about
  std::string text;
  Duration elapsed{};     // since the transition began
  Duration phase_time{};  // kProgress: how long the phase that has just ended took
};

struct SendTo {
  MemberId member = 0;
  Message message;
};
// Write `record` if the stored record's revision is `expected_revision` (0: also when there is
// none). Answer with OnStoreResult; one is outstanding at a time. When unsure (I/O error, timeout)
// answer with the error: the leader sends the same swap again and recognises its own record.
struct CompareAndSwap {
  uint64_t expected_revision = 0;
  WorldRecord record;
};
// Start one process per id (REWIRE_MEMBER=id), for a job that will have `slots` slots, on GPUs that
// none of those has who stay. Answer with OnSpawned or OnSpawnFailed; a process that exits before
// it connects is OnSpawnFailed as well.
struct Spawn {
  std::vector<MemberId> members;
  uint32_t slots = 0;
  std::vector<MemberId> stay;
};
// Close the member's connection after what was sent to it has been written. OnDisconnect need not
// follow.
struct Kick {
  MemberId member = 0;
};
// This process is in no world and will not come into one: end it if it is still running.
struct EndProcess {
  MemberId member = 0;
};

// The job cannot go on: all its processes end, and the reason is shown to whoever started the job.
// Given once. Every other end, of a process or of a change, leaves the job running.
struct EndJob {
  std::string reason;
  // False: no member of the world is left, so that the exit statuses of the processes say how the
  // job ended. An unmodified program may have ended well without destroying its communicators.
  bool survivors = true;
};

using LeaderAction = std::variant<SendTo, CompareAndSwap, Spawn, Kick, EndProcess, EndJob, Note>;

}  // namespace rewire
