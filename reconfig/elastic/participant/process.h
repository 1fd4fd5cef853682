// The objects that a process has once: its participant, the owner of its communicators, and the
// counters of librewire.so and of our other libraries, which give librewire.so a function that
// reads theirs (reconfig/base/counters.h). Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/abi/counter_value.h"
#include "reconfig/elastic/participant/communicators.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

class Participant;

// Mints a unique id with this process's NCCL.
absl::StatusOr<UniqueIdBytes> MintUniqueId();
// Returns the owner of this process's communicators; nullptr: none.
Communicators* GetCommunicators();
// Returns the process's participant; nullptr without one and in a forked child.
std::shared_ptr<Participant> CurrentParticipant();
// Returns whether this process is a forked child of a member.
bool InForkedChild();
// Makes the process's participant, unless there is one already. Returns at once: a thread connects.
absl::StatusOr<std::shared_ptr<Participant>> StartParticipant(bool cooperates);
// Registers the exit handler of a program that uses the C API once more, so that the handler runs
// before later-made objects are destroyed. Only the first call in a process does anything.
void EndUseAtExit();
// Ends what Rewire's threads do with a program that has not detached, for exit handlers.
void EndUse();
// Ends and forgets the participant. The process cannot become a member again.
void EndParticipant();
// Returns the counters of all libraries with values other than 0.
[[nodiscard]] std::vector<CounterValue> ProcessCounters();

}  // namespace rewire::elastic

// Adds another library's counters (rewire::AddCounters).
extern "C" void rewire_add_counters(rewire::ReadCounters read) noexcept;
