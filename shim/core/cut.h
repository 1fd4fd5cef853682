// Moves one communicator from a generation to the next: pledge, decision, warm operation, swap.
// Decided swaps wait in a queue, perhaps for hours, until the program's operations reach them.
//
// The application's thread calls AtCut and BeforeCut (the entry's slow path); the participant's
// thread calls the rest. A member at a pledged index without a decision waits and never guesses.
// The swap itself allocates nothing and makes nothing on the device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/nccl_calls.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Events at a cut, reported on the thread that called in. An implementation must not block.
class CutEvents {
 public:
  virtual ~CutEvents() = default;
  // Reports a generation that is out of use or was dropped. Called with the chain's lock held.
  virtual void SwappedOut(std::unique_ptr<Link> old) = 0;
  // The rest are called without any lock. Passed: the communicator is on its next generation.
  virtual void Passed() = 0;
  virtual void Undecided(Epoch epoch) = 0;
  // Reports that this member cannot follow the decision, or never learned the decision. Its
  // generations must be aborted.
  virtual void GivenUp(const std::string& reason) = 0;
  // Returns the non-blocking communicators of this process.
  virtual std::vector<std::shared_ptr<Chain>> NonBlocking() = 0;
};

class Cutter {
 public:
  Cutter(const NcclCalls* nccl, const ShimServices* services, Device* device,
         CoreCounters* counters, CutEvents* events, milliseconds decision, milliseconds settle)
      : nccl_(nccl),
        services_(services),
        device_(device),
        counters_(counters),
        events_(events),
        decision_(decision),
        settle_(settle) {}

  // Pledges that no operation at or beyond cut.warm will be issued before Decide. Returns the
  // reason when the pledge is refused.
  std::optional<std::string> Pledge(Chain* chain, Epoch epoch, const Cut& cut);
  // With `go` the swap becomes pending and drops the swaps that it replaces. Does nothing without a
  // pledge for this epoch.
  void Decide(Chain* chain, Epoch epoch, bool go);
  // At the update boundary: goes to the generation built for the epoch at once and restarts the
  // operation counter at 0. Without such a generation the communicator is closed.
  void SwapNow(Chain* chain, Epoch epoch);

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
  std::optional<std::string> CheckPledge(Chain* chain, Epoch epoch, const Cut& cut)
      REWIRE_REQUIRES(chain->mutex);
  Verdict NextStep(Chain* chain, const CallSite& site, Call* call);
  // Returns nullopt when the caller must look again, for example after a decision.
  std::optional<Verdict> AwaitDecision(Chain* chain, Call* call) REWIRE_REQUIRES(chain->mutex);
  Verdict WarmAt(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  Verdict SwapAtCut(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  // Orders later work on the site's stream after the last operation.
  bool Follow(Chain* chain, DeviceEvent end, cudaStream_t stream) REWIRE_REQUIRES(chain->mutex);
  void GoToBuilt(Chain* chain, Epoch epoch) REWIRE_REQUIRES(chain->mutex);
  ncclResult_t Warm(Chain* chain, const CallSite& site, const Verdict& verdict);
  // Waits until NCCL's background thread has launched the operations issued on a non-blocking
  // generation. ncclInProgress: the deadline passed. ncclRemoteError: communicator lost or closed.
  ncclResult_t Settle(Chain* chain, const Generation* generation, Time deadline);
  // Settles the current generation of every non-blocking communicator of this process.
  ncclResult_t SettleAll(Time deadline);
  [[nodiscard]] std::string NotLaunched(Epoch epoch) const;

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  CutEvents* const events_;
  const milliseconds decision_;
  const milliseconds settle_;
};

}  // namespace rewire::shim
