// The communicators of this process. The participant drives them (Communicators), and the preloaded
// library calls them (CoreTable, by entry/core_entry.cc).
//
// Thread-safe. The registry's lock and a chain's lock are never held together, and neither is held
// across a call into NCCL or a callback.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/base/task_queue.h"
#include "reconfig/elastic/participant/communicators.h"
#include "shim/core/builder.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/cut.h"
#include "shim/core/loss.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/retirement.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

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
  [[nodiscard]] const CoreCounters& counters() const { return counters_; }

  // ---- for the preloaded library; see CoreTable ------------------------------------------------
  int OnCreated(VirtualCommunicator* comm, ncclResult_t* result);
  void OnOpened(VirtualCommunicator* comm);
  void OnClosing(VirtualCommunicator* comm, bool aborting);
  const char* OnLastError(VirtualCommunicator* comm);
  ncclResult_t AtCut(VirtualCommunicator* comm, const CallSite& site);
  void BeforeCut(VirtualCommunicator* comm, const CallSite& site);

  // ---- for the participant; see Communicators --------------------------------------------------
  std::vector<elastic::CommunicatorCreated> List() override;
  std::vector<elastic::CommunicatorCounter> Counters() override;
  absl::StatusOr<elastic::UniqueIdBytes> Mint(const CommunicatorId& communicator) override;
  void Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds, Time deadline,
             std::function<void(absl::Status)> done) override;
  std::vector<elastic::Position> Positions() override;
  std::optional<elastic::CutRefusal> Pledge(Epoch epoch, const std::vector<Cut>& cuts) override;
  void Decide(Epoch epoch, bool go) override;
  void SwapNow(Epoch epoch) override;
  void Retire(std::vector<elastic::GenerationId> generations) override;
  void Abandon(Epoch epoch) override;
  void AbortCurrent(std::string reason) override;
  std::string LostBecause() override;

 private:
  void SwappedOut(std::unique_ptr<Link> old) override { retirement_.Add(std::move(old)); }
  void Passed() override { passed_.store(true, std::memory_order_release); }
  void Undecided(Epoch epoch) override;
  void GivenUp(const std::string& reason) override;
  std::vector<std::shared_ptr<Chain>> NonBlocking() override;
  std::shared_ptr<Chain> Find(const CommunicatorId& id, bool* may_come) override;
  bool Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) override;

  // Runs on the thread of calls_, from time to time while swaps are pending. Waking that thread
  // from the application's thread, at the cut, would cost more than all other work there.
  void LookForPassages(uint64_t decision, milliseconds pause) REWIRE_EXCLUDES(mutex_);
  void Moved();
  static elastic::CommunicatorCreated DescribeCreated(Chain* chain);
  [[nodiscard]] bool HasRank(const CommunicatorId& id) const REWIRE_REQUIRES(mutex_);
  // Returns whether a new generation's first operation may run beside old generations' operations.
  bool MayRunBeside(const Chain& chain, size_t chains);
  std::shared_ptr<Chain> ChainOf(VirtualCommunicator* comm) REWIRE_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<Chain>> Chains() REWIRE_EXCLUDES(mutex_);
  ncclResult_t AwaitFirst(Chain* chain);
  // Marks the chain lost and takes its generations out. reason: a text of reasons_.
  void Lose(Chain* chain, const char* reason, std::vector<std::unique_ptr<Link>>* links);
  // Ends a creation that is not made within REWIRE_BUILD_MS. After a loss, a creation that needs
  // the lost member never ends, and the members that a creation needs are not known.
  void WatchCreation(const std::shared_ptr<Chain>& chain);
  // Returns a copy that stays valid; equal texts are kept once.
  const char* Keep(const std::string& reason) REWIRE_EXCLUDES(mutex_);
  elastic::CommunicatorEvents* events() { return events_.load(std::memory_order_acquire); }

  const NcclCalls nccl_;
  const ShimServices* const services_;
  Device* const device_;
  const Options options_;
  CoreCounters counters_;
  MemoryLedger ledger_;
  std::atomic<elastic::CommunicatorEvents*> events_{nullptr};
  std::atomic<bool> passed_{false};     // a cut was passed since the last look
  std::atomic<bool> lost_{false};       // a member was lost since the last update boundary
  std::atomic<uint64_t> decisions_{0};  // number of decided swaps
  Cutter cutter_;

  Mutex mutex_;
  std::map<VirtualCommunicator*, std::shared_ptr<Chain>> chains_ REWIRE_GUARDED_BY(mutex_);
  std::set<std::string> reasons_ REWIRE_GUARDED_BY(mutex_);
  std::map<VirtualCommunicator*, uint64_t> free_before_ REWIRE_GUARDED_BY(mutex_);

  // Threads, joined in order from the last to the first.
  TaskQueue calls_;  // makes callbacks to the participant for the application's threads
  Loss loss_;
  Retirement retirement_;
  Builder builder_;
};

}  // namespace rewire::shim
