// Moves one rank of a communicator from a generation to the next: pledge and decision (Pledges),
// then the warm operation and the swap (Cutter). Decided swaps wait in a queue, perhaps for hours,
// until the program's operations reach them.
//
// The application's thread calls Cutter (the entry's slow path), and the participant's thread calls
// Pledges. A member at a pledged index without a decision waits and never guesses. The swap itself
// allocates nothing and makes nothing on the device. Thread-safe under each chain's lock.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "reconfig/base/clock.h"
#include "shim/core/chain.h"
#include "shim/core/environment.h"
#include "shim/core/retirement.h"

namespace rewire::shim {

// The participant's side.
class Pledges {
 public:
  Pledges(Environment* environment, Retirement* retirement)
      : services_(environment->services), retirement_(retirement) {}

  // Pledges that no operation at or beyond cut.warm will be issued before Decide. Returns the
  // reason when the pledge is refused.
  std::optional<std::string> Pledge(Chain* chain, Epoch epoch, const Cut& cut);
  // With `go` the swap becomes pending and drops the swaps that it replaces. Does nothing without a
  // pledge for this epoch.
  void Decide(Chain* chain, Epoch epoch, bool go);

 private:
  std::optional<std::string> CheckPledge(Chain* chain, Epoch epoch, const Cut& cut)
      REWIRE_REQUIRES(chain->mutex);

  const ShimServices* const services_;
  Retirement* const retirement_;
};

// Events at a cut, reported on the thread that called in, and without any lock except for Passed().
// An implementation must not block.
class CutEvents {
 public:
  virtual ~CutEvents() = default;
  // Reports that the communicator goes to its next generation. Called under the chain's lock.
  virtual void Passed() = 0;
  virtual void Undecided(Epoch epoch) = 0;
  // Reports that this member cannot follow the decision, or never learned the decision. Its
  // generations must be aborted.
  virtual void GivenUp(const std::string& reason) = 0;
};

// Waits until NCCL has launched the operations of non-blocking communicators. For Cutter, on the
// application's threads.
//
// NCCL launches the operations of a non-blocking communicator from a background thread, one thread
// per group (groupLaunchNonBlocking). Between two generations the order on a device is
// therefore undefined until ncclCommGetAsyncError has left ncclInProgress. Ranks that launch the
// same two operations in different orders deadlock. The polls never overlap the program's calls
// with the same communicator (Callers). Thread-safe.
//
// Only the chain's own generations are waited for. The program itself must order the launches of
// its different communicators, and a launch of another one may need a peer that waits for this one.
class Launches {
 public:
  // Must outlive this object.
  explicit Launches(const NcclCalls* nccl) : nccl_(nccl) {}

  // Waits until the operations issued on a non-blocking generation are launched. The caller counts
  // itself in the generation's `fixed`. Returns the communicator's state. ncclInProgress: the
  // deadline passed. ncclRemoteError: the communicator was lost or closed. ncclInternalError: NCCL
  // gave no state.
  ncclResult_t Await(Chain* chain, const Generation* generation, Time deadline);

 private:
  const NcclCalls* const nccl_;
};

// The application's side.
class Cutter {
 public:
  // decision: REWIRE_DECISION_MS. settle: REWIRE_BUILD_MS, the limit of waits for NCCL's launches.
  Cutter(Environment* environment, const Chains* chains, Retirement* retirement, CutEvents* events,
         milliseconds decision, milliseconds settle)
      : nccl_(&environment->nccl),
        services_(environment->services),
        device_(environment->device),
        counters_(&environment->counters),
        chains_(chains),
        launches_(&environment->nccl),
        retirement_(retirement),
        events_(events),
        decision_(decision),
        settle_(settle) {}

  // See CoreTable::at_cut and CoreTable::before_cut. A thread may drive several ranks. A call waits
  // for the call of another rank only as the operation itself would: inside NCCL, or, of a
  // non-blocking communicator outside a group, for its launch.
  ncclResult_t AtCut(Chain* chain, const CallSite& site);
  void BeforeCut(Chain* chain, const CallSite& site);

 private:
  enum class Step : uint8_t { kReturn, kSettle, kWarm, kSwapped, kAsk, kGiveUp };
  // The progress of one call of AtCut.
  struct Call {
    Time deadline{};  // end of the wait for a decision
    bool asked = false;
    bool settled = false;
  };
  struct Verdict {
    Step step = Step::kReturn;
    ncclResult_t result = ncclSuccess;
    Epoch epoch = 0;
    Generation* generation = nullptr;  // generation to warm or to settle, counted in its `fixed`
    void* warm_scratch = nullptr;
  };
  static Verdict Return(ncclResult_t result);
  static Verdict Act(Step step, Epoch epoch);
  ncclResult_t PassCuts(Chain* chain, const CallSite& site);
  Verdict NextStep(Chain* chain, const CallSite& site, Call* call);
  // Returns nullopt when the caller must look again, for example after a decision.
  std::optional<Verdict> AwaitDecision(Chain* chain, Call* call) REWIRE_REQUIRES(chain->mutex);
  // Returns the error to the program. ncclGetLastError gives the reason, which is logged once.
  Verdict Refuse(Chain* chain, ncclResult_t result, const std::string& why)
      REWIRE_REQUIRES(chain->mutex);
  // A CUDA graph capture forbids a part of the swap.
  Verdict RefuseCapture(Chain* chain, Epoch epoch, const char* forbidden)
      REWIRE_REQUIRES(chain->mutex);
  Verdict WarmAt(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  Verdict SwapAtCut(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  // Orders later work on the site's stream after the last operation, also in a CUDA graph capture.
  // A capture adds to its graph only a wait for the event, and keeps the capture valid.
  bool Follow(Chain* chain, DeviceEvent end, cudaStream_t stream) REWIRE_REQUIRES(chain->mutex);
  ncclResult_t Warm(Chain* chain, const CallSite& site, const Verdict& verdict);
  ncclResult_t IssueWarm(const CallSite& site, const Verdict& verdict);
  ncclResult_t IssueWarmOutside(const Chain& chain, const CallSite& site, const Verdict& verdict);
  // Returns whether the warm operation becomes a part of the program's group.
  [[nodiscard]] bool JoinsGroup(const Chain& chain, const CallSite& site) const;
  [[nodiscard]] std::string NotLaunched(Epoch epoch) const;

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  const Chains* const chains_;
  Launches launches_;
  Retirement* const retirement_;
  CutEvents* const events_;
  const milliseconds decision_;
  const milliseconds settle_;
};

}  // namespace rewire::shim
