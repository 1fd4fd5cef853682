// The actions that the leader asks of its agent, in the given order. Pure values.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/leader/phase.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

enum class NoteKind : uint8_t {
  kProgress,  // the phase changed
  kFailed,    // a transition was aborted, or a request refused later
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
  std::vector<MemberId> stay;
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
