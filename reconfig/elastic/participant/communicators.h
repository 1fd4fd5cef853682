// The interface through which the participant uses this process's communicators. The shim's core
// implements the interface; a program without NCCL has no implementation.
//
// Owned by the member's thread, except where a method says otherwise. `done` callbacks may come
// from any thread. No method blocks longer than a lock's hold.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

class Communicators {
 public:
  virtual ~Communicators() = default;

  // Returns one counter for each communicator.
  virtual std::vector<CommunicatorCounter> Counters() = 0;
  // Returns the generations of every communicator. A communicator that the program has destroyed is
  // included while old generations of it are left.
  virtual std::vector<Position> Positions() = 0;

  // Mints a unique id of the real NCCL for the next generation of a communicator (kUpdateBoundary:
  // for a new communicator). Returns the 128 bytes, followed by an opaque record of the
  // communicator's use. CommunicatorBuild carries all of these bytes, so that all ranks make the
  // same warm-up. Runs on the caller's thread; quick.
  virtual absl::StatusOr<UniqueIdBytes> Mint(const CommunicatorId& communicator) = 0;

  // Builds and warms, in the background and in the given order, one generation per entry, with all
  // ranks that this process has in the generation. Calls
  // `done` once: ok when all are built. Refuses at once when a communicator is pinned or memory
  // does not fit. At the deadline, or on Abandon(epoch), aborts the built generations and gives
  // `done` the reason.
  virtual void Build(Epoch epoch, std::vector<CommunicatorBuild> builds, Time deadline,
                     std::function<void(absl::Status)> done) = 0;

  // Pledges the cuts (never kUpdateBoundary): from then on the application's thread waits at a warm
  // index until Decide. Succeeds when every communicator has room for two more operations before
  // its warm index. With warm == cut, the communicator must not have issued that operation, have a
  // thread inside, or ever have carried sends or receives. A refusal says why and leaves no pledge.
  virtual std::optional<CutRefusal> Pledge(Epoch epoch, const std::vector<Cut>& cuts) = 0;
  // go: the cuts hold. Drops a pending swap whose cut is not before the new cut; the dropped
  // generation waits unused for Retire. Not go: forgets the pledges.
  virtual void Decide(Epoch epoch, bool go) = 0;

  // At an update boundary, with the application's thread inside rewireUpdate(): moves every
  // communicator to the epoch's generation at once, with its new rank and size. Closes
  // communicators that this member is no longer in: every call on them returns ncclInvalidUsage.
  virtual void SwapNow(Epoch epoch) = 0;

  // The same for the communicators that still have a pending swap of this epoch: they go to its
  // generation, with the same ranks. Call before the same update on all members.
  virtual void SwapPending(Epoch epoch) = 0;

  // Destroys these generations in the background, in this order and after those of earlier calls.
  // Skips a generation that is in use or unknown.
  virtual void Retire(std::vector<GenerationId> generations) = 0;
  // Drops the generations built for an epoch that is abandoned.
  virtual void Abandon(Epoch epoch) = 0;
  // Aborts the current generation of every communicator, in one group, after a loss of members or
  // when this member has left the job. Until a new generation is there, calls on these
  // communicators return ncclRemoteError. The same holds for joiners' communicators that wait for
  // their first generation.
  virtual void AbortCurrent(std::string reason) = 0;
  // Says how many members are left after a loss; 1 when this member has left the job. A
  // communicator that the program creates later, and that needs more ranks, fails at once. Called
  // before AbortCurrent.
  virtual void SetLiving(uint32_t /*members*/) {}
  // Returns why a current generation was aborted; empty when none was, or when each such generation
  // was replaced or destroyed since. Thread-safe. Every kernel that AbortCurrent ended has ended
  // before this function returns its reason.
  virtual std::string LostBecause() = 0;
  // The program's CUDA graphs no longer exist: they pin no communicator any more. Thread-safe.
  virtual void ReleaseGraphs() = 0;
};

// Tells the participant, in the same library as the shim's core, which object owns the
// communicators; nullptr: none. Call before the first communicator is created.
void SetCommunicators(Communicators* communicators);

// Events that the shim's core reports to the participant. Thread-safe; only AwaitSent() blocks, and
// without an agent no method does anything.
class CommunicatorEvents {
 public:
  virtual ~CommunicatorEvents() = default;
  // Both report one rank. A process may have several ranks of one communicator.
  virtual void Created(const CommunicatorCreated& created) = 0;
  virtual void Destroyed(const CommunicatorId& communicator, uint32_t rank) = 0;
  // Reports why the communicator cannot be swapped from now on; empty: it can.
  virtual void Pinned(const CommunicatorId& communicator, const std::string& reason) = 0;
  // Waits, for a second at most, until the agent has been sent the events before this call. Called
  // when the last communicator is destroyed: the process may end at once, and its end is a loss if
  // the agent takes a communicator for existing.
  virtual void AwaitSent() {}
  // Returns true when rewireUniqueId() has returned this unique id and the member is joining. The
  // communicator's first generation then comes with the next Build.
  virtual bool ComesWithBuild(const CommunicatorId& communicator) = 0;
  // Returns true when this process is no longer part of the job, so that no Build comes. True
  // before AbortCurrent is called.
  virtual bool Stopped() = 0;
  // Reports that Positions() has changed: a cut was passed, or a generation was destroyed.
  virtual void Moved() {}
  // Reports that the application's thread has waited REWIRE_DECISION_MS for Decide(epoch). The
  // thread waits as long again for an answer, then gives up its generations. A participant that
  // already keeps asking the leader need not act.
  virtual void Undecided(Epoch /*epoch*/) {}
};

// Connects this process to the agent at REWIRE_SOCKET, unless the process is a member already or
// the variable is empty. Returns the receiver of events. Fails when a setting is wrong, or when no
// agent accepts the connection within 10 s. Called by the shim's core at the first communicator.
absl::StatusOr<CommunicatorEvents*> EnsureParticipant();

}  // namespace rewire::elastic
