// What the participant asks of whoever owns this process's communicators. The shim's core is the
// one that does; a program without NCCL has none. Nothing here knows the shim.
//
// Thread: every method is called from the participant's own thread; `done` callbacks may come from
// any thread. No method blocks longer than a lock's hold.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/transition/messages.h"

namespace rewire {

class Communicators {
 public:
  virtual ~Communicators() = default;

  // Every virtual communicator of this process, for a report after (re)connecting to an agent.
  virtual std::vector<CommunicatorCreated> List() = 0;
  virtual std::vector<CommunicatorCounter> Counters() = 0;
  // The generations of every communicator, also of one that the program has destroyed while old
  // generations of it are left.
  virtual std::vector<Position> Positions() = 0;

  // Mints a unique id of the real NCCL for the next generation of a communicator (kUpdateBoundary:
  // of none yet): 128 bytes, and behind them what the communicator has been used for, opaque. All
  // of it goes into CommunicatorBuild, so that all ranks make the same warm-up. On the caller's
  // thread; quick.
  virtual absl::StatusOr<UniqueIdBytes> Mint(const CommunicatorId& communicator) = 0;

  // Builds and warms, in the background and in the given order, one generation per entry. done is
  // called once: ok when all are built. Refused at once when a communicator is pinned or memory
  // does not fit. At the deadline, or on Abort(epoch), what was built is aborted and done gets the
  // reason.
  virtual void Build(Epoch epoch, std::vector<CommunicatorBuild> builds, Time deadline,
                     std::function<void(absl::Status)> done) = 0;

  // Pledges the cuts (never kUpdateBoundary): from then on the application's thread waits at a warm
  // index until Decide. Given when every communicator has room for two more operations before its
  // warm index; with warm == cut when it has issued no more than that, no thread is inside it, and
  // it has never carried sends or receives. Else no pledge stands, and the refusal says why.
  virtual std::optional<CutRefusal> Pledge(Epoch epoch, const std::vector<Cut>& cuts) = 0;
  // go: the cuts hold. A pending swap whose cut is not before the new one is dropped; its
  // generation waits for Retire unused. Not go: pledges are forgotten.
  virtual void Decide(Epoch epoch, bool go) = 0;

  // At an update boundary, with the application's thread inside rewireUpdate(): every communicator
  // goes to the epoch's generation at once (rank and size change with it). Communicators this
  // member is no longer in become closed: every call on them gives ncclInvalidUsage.
  virtual void SwapNow(Epoch epoch) = 0;

  // Destroys these generations in the background, in this order and after those of earlier calls.
  // One that is in use, or not there, is left alone.
  virtual void Retire(std::vector<GenerationId> generations) = 0;
  // Drops the generations built for an epoch that will not come.
  virtual void Abandon(Epoch epoch) = 0;
  // Members were lost, or this one is out of the job: aborts the current generation of every
  // communicator, in one group. Calls on them give ncclRemoteError until a new generation is there;
  // so do joiners' communicators that wait for their first.
  virtual void AbortCurrent(std::string reason) = 0;
  // Why a current generation was aborted; empty: none was, or each of them was replaced or
  // destroyed since. Thread-safe. A kernel that AbortCurrent ended has ended after this has said
  // so.
  virtual std::string LostBecause() = 0;
};

// The shim's core and the participant live in one library; the participant is told of the
// communicators by this call, made before the first communicator is. nullptr: none.
void SetCommunicators(Communicators* communicators);

// What the shim's core tells the participant. Thread-safe; never blocks; does nothing without an
// agent.
class CommunicatorEvents {
 public:
  virtual ~CommunicatorEvents() = default;
  virtual void Created(const CommunicatorCreated& created) = 0;
  virtual void Destroyed(const CommunicatorId& communicator) = 0;
  // True when this unique id was given out by rewireUniqueId() and the member is joining: the
  // communicator's first generation comes with the next Build.
  virtual bool ComesWithBuild(const CommunicatorId& communicator) = 0;
  // This process is not part of the job any more: no Build comes. Said before AbortCurrent.
  virtual bool Stopped() = 0;
  // Positions() has changed: a cut was passed, or a generation was destroyed.
  virtual void Moved() {}
  // The application's thread has waited REWIRE_DECISION_MS for Decide(epoch). It waits as long
  // again for an answer, then gives its generations up. A participant that goes on asking the
  // leader by itself has nothing to do.
  virtual void Undecided(Epoch /*epoch*/) {}
};

// Connects this process to the agent at REWIRE_SOCKET, unless the process is a member already or
// the variable is empty. Returns the receiver of events. An error: a setting is wrong, or no agent
// accepted the connection within 10 s. Called by the shim's core at the first communicator.
absl::StatusOr<CommunicatorEvents*> EnsureParticipant();

}  // namespace rewire
