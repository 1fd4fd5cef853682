// The communicators of this process. The participant drives them (Communicators), and the preloaded
// library calls them (CoreTable). Each call is passed to the part that owns the state: Chains,
// Pledges and Cutter, Publication, Builder, Retirement, Loss.
//
// Thread-safe. No lock is held across a call into NCCL or a callback.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/task_queue.h"
#include "reconfig/elastic/participant/communicators.h"
#include "shim/core/builder.h"
#include "shim/core/chain.h"
#include "shim/core/cut.h"
#include "shim/core/environment.h"
#include "shim/core/loss.h"
#include "shim/core/loss_report.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/publication.h"
#include "shim/core/retirement.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

// Reports to the participant that communicators have passed their cuts. For ShimCommunicators.
//
// Waking another thread from the application's thread, at the cut, would cost more than all other
// work there. So the application's thread only sets a flag, and a task queue looks for the flag
// from time to time while decided swaps are pending. Thread-safe.
class Passages {
 public:
  // moved: called after cuts were passed, on the queue's thread. The queue's thread must be joined
  // before this object or the chains are destroyed.
  Passages(const Chains* chains, TaskQueue* queue, std::function<void()> moved)
      : chains_(chains), queue_(queue), moved_(std::move(moved)) {}

  // Called at a cut, on the application's thread: never blocks and allocates nothing.
  void Passed() { passed_.store(true, std::memory_order_release); }
  // Begins to look, because swaps were decided. Earlier series of looks end, so that only one runs.
  void Watch() { Look(decisions_.fetch_add(1, std::memory_order_acq_rel) + 1, milliseconds(0)); }

 private:
  void Look(uint64_t decision, milliseconds pause);

  const Chains* const chains_;
  TaskQueue* const queue_;
  const std::function<void()> moved_;
  std::atomic<bool> passed_{false};     // a cut was passed since the last look
  std::atomic<uint64_t> decisions_{0};  // number of decided swaps
};

class ShimCommunicators : public elastic::Communicators, private CutEvents, private BuildSite {
 public:
  struct Options {
    milliseconds build{60000};    // REWIRE_BUILD_MS
    milliseconds decision{2000};  // REWIRE_DECISION_MS
    milliseconds retire{100};     // REWIRE_RETIRE_MS
    milliseconds stalled{3000};   // see Builder
  };
  // services and device must outlive this object.
  ShimCommunicators(const NcclCalls& nccl, const ShimServices* services, Device* device,
                    Options options);
  ~ShimCommunicators() override;

  // Sets the receiver of events. Call before the first communicator is created.
  void SetEvents(elastic::CommunicatorEvents* events) { events_.store(events); }
  // Sets what registers OnExit(); see ExitGate::SetUsed. Call before the first communicator.
  void SetUsed(void (*used)()) { environment_.exit_gate->SetUsed(used); }
  [[nodiscard]] const CoreCounters& counters() const { return environment_.counters; }

  // ---- for the preloaded library; see CoreTable ------------------------------------------------
  int OnCreated(VirtualCommunicator* comm, ncclResult_t* result);
  uint64_t FreeMemory(VirtualCommunicator* comm);
  void OnTookMemory(VirtualCommunicator* comm, uint64_t free_before);
  void OnClosing(VirtualCommunicator* comm, bool aborting);
  const char* OnLastError(VirtualCommunicator* comm);
  void OnPinned(VirtualCommunicator* comm);
  ncclResult_t AwaitFirst(VirtualCommunicator* comm);
  ncclResult_t AtCut(VirtualCommunicator* comm, const CallSite& site);
  void BeforeCut(VirtualCommunicator* comm, const CallSite& site);
  // Ends all that Rewire's threads do in NCCL, within a bounded time. The program may go on to use
  // its communicators. Call while exit() runs, before the CUDA runtime's exit handler.
  void OnExit();

  // ---- for the participant; see Communicators --------------------------------------------------
  std::vector<elastic::CommunicatorCounter> Counters() override;
  absl::StatusOr<elastic::UniqueIdBytes> Mint(const CommunicatorId& communicator) override;
  void Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds, Time deadline,
             std::function<void(absl::Status)> done) override;
  std::vector<elastic::Position> Positions() override;
  std::optional<elastic::CutRefusal> Pledge(Epoch epoch, const std::vector<Cut>& cuts) override;
  void Decide(Epoch epoch, bool go) override;
  void SwapNow(Epoch epoch) override;
  void SwapPending(Epoch epoch) override;
  void Retire(std::vector<elastic::GenerationId> generations) override;
  void Abandon(Epoch epoch) override;
  void SetLiving(uint32_t members) override { loss_report_.SetLiving(members); }
  void AbortCurrent(std::string reason) override;
  std::string LostBecause() override;
  void ReleaseGraphs() override;

 private:
  void Passed() override { passages_.Passed(); }
  void Undecided(Epoch epoch) override;
  void GivenUp(const std::string& reason) override;
  std::vector<std::shared_ptr<Chain>> Find(const CommunicatorId& id, bool* may_come) override;
  bool Quiet() override;
  bool Hold() override;
  void Resume() override { retirement_.Resume(); }
  bool Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) override;

  void Moved();
  // Reports the pins of all ranks that this process has of the communicator.
  void ReportPins(const CommunicatorId& id);
  // Pins all ranks of the communicator here if some are blocking and some are not: no NCCL group
  // may have both, and a generation's ranks are built in one group.
  void PinMixedModes(const CommunicatorId& id);
  // Returns whether a new generation's first operation may run beside old generations' operations.
  bool MayRunBeside(const Chain& chain);
  // Ends a creation that is not made within REWIRE_BUILD_MS. After a loss, a creation that needs
  // the lost member never ends, and the members that a creation needs are not known.
  void WatchCreation(const std::shared_ptr<Chain>& chain);
  elastic::CommunicatorEvents* events() { return events_.load(std::memory_order_acquire); }

  Environment environment_;
  const milliseconds build_;  // REWIRE_BUILD_MS
  MemoryLedger ledger_;
  std::atomic<elastic::CommunicatorEvents*> events_{nullptr};
  LossReport loss_report_;            // active: a member was lost since the last update boundary
  std::atomic<bool> several_{false};  // a communicator has had several ranks in this process
  Chains chains_;
  Passages passages_;
  Pledges pledges_;
  Publication publication_;
  Cutter cutter_;

  // Threads, joined in order from the last to the first.
  TaskQueue calls_;  // makes callbacks to the participant for the application's threads
  Loss loss_;
  Retirement retirement_;
  Builder builder_;
};

// Returns the table that sends every later call of the preloaded library to `communicators`, which
// must outlive the table. Called once, at the start, by entry/core_entry.cc.
const CoreTable* TableOf(ShimCommunicators* communicators);

}  // namespace rewire::shim
