// One communicator's way from a generation to the next: pledge, decision, warm operation, swap.
// Decided swaps wait in a queue until the program's operations reach them, for hours if need be.
//
// The application's thread calls AtCut and BeforeCut (the entry's slow path); the participant's
// thread calls the rest. A member that stands at a pledged index undecided waits; it never guesses.
// Between the pledge and the swap nothing is allocated and nothing is made on the device.
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
#include "shim/core_abi.h"

namespace rewire::shim {

// What happens at a cut that others must hear of, on the thread that called in; must not block.
class CutEvents {
 public:
  virtual ~CutEvents() = default;
  // A generation is out of use, or was dropped unused. Called with the chain's lock held.
  virtual void SwappedOut(std::unique_ptr<Link> old) = 0;
  // The rest without any lock. The communicator is on its next generation.
  virtual void Passed() = 0;
  virtual void Undecided(Epoch epoch) = 0;
  // This member cannot follow the decision, or never learned it: its generations must be aborted.
  virtual void GivenUp(const std::string& reason) = 0;
  // The non-blocking communicators of this process. Without any lock.
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

  // No operation at or beyond cut.warm will be issued before Decide. Otherwise the reason.
  std::optional<std::string> Pledge(Chain* chain, Epoch epoch, const Cut& cut);
  // Go: the swap is pending; those that it replaces are dropped. Nothing without a pledge for this
  // epoch.
  void Decide(Chain* chain, Epoch epoch, bool go);
  // The update boundary: to the generation built for the epoch at once, operation counter from 0.
  // Without one the communicator is closed.
  void SwapNow(Chain* chain, Epoch epoch);

  ncclResult_t AtCut(Chain* chain, const CallSite& site);
  void BeforeCut(Chain* chain, const CallSite& site);

 private:
  enum class Step : uint8_t { kReturn, kSettle, kWarm, kSwapped, kAsk, kGiveUp };
  // What one call of AtCut has done so far.
  struct Call {
    Time deadline{};  // of the wait for a decision
    bool asked = false;
    bool settled = false;
  };
  struct Verdict {
    Step step = Step::kReturn;
    ncclResult_t result = ncclSuccess;
    Epoch epoch = 0;
    Generation* generation = nullptr;  // to warm or to settle; counted in its `fixed`
    void* warm_scratch = nullptr;
  };
  static Verdict Return(ncclResult_t result);
  static Verdict Act(Step step, Epoch epoch);
  std::optional<std::string> CheckPledge(Chain* chain, Epoch epoch, const Cut& cut)
      REWIRE_REQUIRES(chain->mutex);
  Verdict NextStep(Chain* chain, const CallSite& site, Call* call);
  // Nothing: a decision has come.
  std::optional<Verdict> AwaitDecision(Chain* chain, Call* call) REWIRE_REQUIRES(chain->mutex);
  Verdict WarmAt(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  Verdict SwapAtCut(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  // Orders what is put on the site's stream from now on after the last operation.
  bool Follow(Chain* chain, DeviceEvent end, cudaStream_t stream) REWIRE_REQUIRES(chain->mutex);
  void GoToBuilt(Chain* chain, Epoch epoch) REWIRE_REQUIRES(chain->mutex);
  ncclResult_t Warm(Chain* chain, const CallSite& site, const Verdict& verdict);
  // Waits until NCCL's background thread has launched what was issued on a non-blocking generation.
  // ncclInProgress: the deadline passed. ncclRemoteError: the communicator was lost or closed.
  ncclResult_t Settle(Chain* chain, const Generation* generation, Time deadline);
  // The same for the current generation of every non-blocking communicator of this process.
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
