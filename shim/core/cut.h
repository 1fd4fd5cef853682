// One communicator's way from a generation to the next: pledge, decision, warm operation, swap.
//
// The application's thread calls AtCut and BeforeCut (the entry's slow path); the participant's
// thread calls the rest. A member that stands at a pledged index undecided waits; it never guesses.
// Between the pledge and the swap nothing is allocated and nothing is made on the device.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

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
  // The generation before is out of use. Called with the chain's lock held.
  virtual void SwappedOut(std::unique_ptr<Link> old) = 0;
  // The rest without any lock. The communicator is on its epoch's generation.
  virtual void Passed(Epoch epoch, uint64_t host_waits) = 0;
  virtual void Undecided(Epoch epoch) = 0;
  // This member cannot follow the decision, or never learned it: its generations must be aborted.
  virtual void GivenUp(const std::string& reason) = 0;
};

class Cutter {
 public:
  Cutter(const NcclCalls* nccl, const ShimServices* services, Device* device,
         CoreCounters* counters, CutEvents* events, milliseconds decision)
      : nccl_(nccl),
        services_(services),
        device_(device),
        counters_(counters),
        events_(events),
        decision_(decision) {}

  // True: no operation at or beyond cut.warm will be issued before Decide.
  bool Pledge(Chain* chain, Epoch epoch, const Cut& cut);
  // True when a pledge for this epoch stood.
  bool Decide(Chain* chain, Epoch epoch, bool go);
  // The update boundary: to the generation built for the epoch at once, operation counter from 0.
  // Without one the communicator is closed.
  void SwapNow(Chain* chain, Epoch epoch);

  ncclResult_t AtCut(Chain* chain, const CallSite& site);
  void BeforeCut(Chain* chain, const CallSite& site);

 private:
  enum class Step : uint8_t { kReturn, kWarm, kSwapped, kAsk, kGiveUp };
  struct Verdict {
    Step step = Step::kReturn;
    ncclResult_t result = ncclSuccess;
    Epoch epoch = 0;
    uint64_t host_waits = 0;
    ncclComm_t warm_comm = nullptr;
    void* warm_scratch = nullptr;
  };
  static Verdict Return(ncclResult_t result);
  static Verdict Act(Step step, Epoch epoch);
  Verdict NextStep(Chain* chain, const CallSite& site, Time* deadline, bool* asked);
  Verdict SwapAtCut(Chain* chain, const CallSite& site) REWIRE_REQUIRES(chain->mutex);
  void GoToBuilt(Chain* chain, Epoch epoch) REWIRE_REQUIRES(chain->mutex);
  ncclResult_t Warm(Chain* chain, const CallSite& site, const Verdict& verdict);
  // Until the communicator's asynchronous state is settled; ncclInProgress at the deadline.
  ncclResult_t Settle(ncclComm_t comm);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  CutEvents* const events_;
  const milliseconds decision_;
};

}  // namespace rewire::shim
