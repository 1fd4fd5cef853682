// The actions that the leader asks of its agent, in the given order, and the phases that its notes
// name. Pure values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

// The phases of a job and of its current transition (docs/protocol.md).
enum class Phase : uint8_t {
  kForming = 0,     // no world yet: initial members are awaited
  kRecovering = 1,  // this leader has just started: members of the stored world are awaited
  kSteady = 2,      // no transition
  // PREPARE, first half: epoch noted in the store, processes started, joiners awaited.
  kReserve = 3,
  kPrepare = 4,     // PREPARE: generations built and plans made, up to READY
  kPropose = 5,     // READY: pledges are collected
  kArmed = 6,       // members run to the boundary; after a loss: Lost has been sent
  kAtBoundary = 7,  // all members are at the boundary: the rest is streamed and verified
  // VERIFIED: the compare-and-swap was sent, so the leader cannot abort by itself.
  kCommitting = 8,
  kCommitted = 9,  // members enter the new epoch
  kRetiring = 10,  // all entered: old generations are destroyed
  kStopped = 11,   // the job ended, or this leader was deposed
};
// Returns the name in docs/protocol.md.
inline std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForming:
      return "FORMING";
    case Phase::kRecovering:
      return "RECOVERING";
    case Phase::kSteady:
      return "STEADY";
    case Phase::kReserve:
      return "RESERVE";
    case Phase::kPrepare:
      return "PREPARE";
    case Phase::kPropose:
      return "READY";
    case Phase::kArmed:
      return "ARMED";
    case Phase::kAtBoundary:
      return "AT_BOUNDARY";
    case Phase::kCommitting:
      return "VERIFIED";
    case Phase::kCommitted:
      return "COMMITTED";
    case Phase::kRetiring:
      return "RETIRING";
    case Phase::kStopped:
      return "STOPPED";
  }
  return "UNKNOWN";
}

enum class NoteKind : uint8_t {
  kProgress,  // the phase changed
  kFailed,    // a transition was aborted, or an accepted request was refused later
  kDone,      // a transition ended in its new world
  kMember,    // a member connected, was lost, finished, left
  kWarning,   // a deadline that cannot be met, a silent member, ...
  kJob,       // the world was formed, the job is done, the job is stopped
};

// Reports progress, for status, trace, metrics and the log. Correctness never depends on a Note.
struct Note {
  uint64_t transition = 0;  // counts attempts of this leader; 0: no transition
  Epoch epoch = 0;          // the target's epoch
  TransitionKind transition_kind = TransitionKind::kSwap;
  Phase phase = Phase::kSteady;
  NoteKind kind = NoteKind::kProgress;
  std::vector<uint64_t> requests;  // ids of the requests that the note is about
  std::string text;
  Duration elapsed{};     // since the transition began
  Duration phase_time{};  // kProgress: how long the phase that has just ended took
};

struct SendTo {
  MemberId member = 0;
  Message message;
};
// Write `record` if the stored record's revision is `expected_revision` (0: also when the store has
// no record). Answer with OnStoreResult; one swap is outstanding at a time. When unsure (I/O error,
// timeout) answer with the error: the leader repeats the swap and recognises its own record.
struct CompareAndSwap {
  uint64_t expected_revision = 0;
  WorldRecord record;
};
// Start one process per id (REWIRE_MEMBER=id), for a job that will have `slots` slots, on GPUs that
// no remaining member uses. Answer with OnSpawned or OnSpawnFailed. Report a process that exits
// before its connection as OnSpawnFailed as well.
struct Spawn {
  std::vector<MemberId> members;
  uint32_t slots = 0;
  std::vector<MemberId> stay;  // the remaining members
};
// Close the member's connection after its messages have been written. OnDisconnect need not follow.
struct Kick {
  MemberId member = 0;
};
// End this process if it still runs: the process is in no world and will not come into one.
struct EndProcess {
  MemberId member = 0;
};

// End all processes of the job and show the reason to the user who started the job. Given once.
// Every other end of a process or of a change leaves the job running.
struct EndJob {
  std::string reason;
  // False: no member of the world is left, so the exit statuses of the processes say how the job
  // ended. An unmodified program may have ended well without destroying its communicators.
  bool survivors = true;
};

using LeaderAction = std::variant<SendTo, CompareAndSwap, Spawn, Kick, EndProcess, EndJob, Note>;

}  // namespace rewire::elastic
