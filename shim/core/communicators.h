// The communicators of this process: what the participant drives (Communicators) and what the
// preloaded library calls (CoreTable, by entry/core_entry.cc).
//
// Any thread. The registry's lock and a chain's are never held together, and none across a call
// into NCCL or a callback.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/participant/communicators.h"
#include "shim/core/builder.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/cut.h"
#include "shim/core/loss.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/retirement.h"
#include "shim/core_abi.h"

namespace rewire::shim {

class ShimCommunicators : public Communicators, private CutEvents, private BuildSite {
 public:
  struct Options {
    milliseconds build{60000};    // REWIRE_BUILD_MS
    milliseconds decision{2000};  // REWIRE_DECISION_MS
    milliseconds retire{100};     // REWIRE_RETIRE_MS
    milliseconds stalled{3000};   // see Builder
  };
  // services and device outlive this object.
  ShimCommunicators(const NcclCalls& nccl, const ShimServices* services, Device* device,
                    Options options);
  ~ShimCommunicators() override;

  // Where events go; before the first communicator.
  void SetEvents(CommunicatorEvents* events) { events_.store(events); }
  [[nodiscard]] const CoreCounters& counters() const { return counters_; }

  // ---- for the preloaded library; see CoreTable ------------------------------------------------
  int OnCreated(VirtualCommunicator* comm, ncclResult_t* result);
  void OnOpened(VirtualCommunicator* comm);
  void OnClosing(VirtualCommunicator* comm, bool aborting);
  const char* OnLastError(VirtualCommunicator* comm);
  ncclResult_t AtCut(VirtualCommunicator* comm, const CallSite& site);
  void BeforeCut(VirtualCommunicator* comm, const CallSite& site);

  // ---- for the participant; see Communicators --------------------------------------------------
  std::vector<CommunicatorCreated> List() override;
  std::vector<CommunicatorCounter> Counters() override;
  absl::StatusOr<UniqueIdBytes> Mint(const CommunicatorId& communicator) override;
  void Build(Epoch epoch, std::vector<CommunicatorBuild> builds, Time deadline,
             std::function<void(absl::Status)> done) override;
  std::vector<Position> Positions() override;
  std::optional<CutRefusal> Pledge(Epoch epoch, const std::vector<Cut>& cuts) override;
  void Decide(Epoch epoch, bool go) override;
  void SwapNow(Epoch epoch) override;
  void Retire(std::vector<GenerationId> generations) override;
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

  // On the thread of calls_, from time to time while swaps are pending: waking that thread from the
  // application's, at the cut, would cost more than all else there.
  void LookForPassages(uint64_t decision, milliseconds pause) REWIRE_EXCLUDES(mutex_);
  void Moved();
  static CommunicatorCreated DescribeCreated(Chain* chain);
  [[nodiscard]] bool HasRank(const CommunicatorId& id) const REWIRE_REQUIRES(mutex_);
  // The new generation's first operation may run while the old ones' do.
  bool MayRunBeside(const Chain& chain, size_t chains);
  std::shared_ptr<Chain> ChainOf(VirtualCommunicator* comm) REWIRE_EXCLUDES(mutex_);
  std::vector<std::shared_ptr<Chain>> Chains() REWIRE_EXCLUDES(mutex_);
  ncclResult_t AwaitFirst(Chain* chain);
  // Marks the chain lost and takes its generations out. reason: of reasons_.
  void Lose(Chain* chain, const char* reason, std::vector<std::unique_ptr<Link>>* links);
  // After a loss a creation that needs the lost member never ends, and which members a creation
  // needs is not known: ends it when it is not made within REWIRE_BUILD_MS.
  void WatchCreation(const std::shared_ptr<Chain>& chain);
  // A copy that stays; the same text is kept once.
  const char* Keep(const std::string& reason) REWIRE_EXCLUDES(mutex_);
  CommunicatorEvents* events() { return events_.load(std::memory_order_acquire); }

  const NcclCalls nccl_;
  const ShimServices* const services_;
  Device* const device_;
  const Options options_;
  CoreCounters counters_;
  MemoryLedger ledger_;
  std::atomic<CommunicatorEvents*> events_{nullptr};
  std::atomic<bool> passed_{false};     // a cut, since it was looked at last
  std::atomic<bool> lost_{false};       // a member, since the last update boundary
  std::atomic<uint64_t> decisions_{0};  // counts the swaps that were decided
  Cutter cutter_;

  Mutex mutex_;
  std::map<VirtualCommunicator*, std::shared_ptr<Chain>> chains_ REWIRE_GUARDED_BY(mutex_);
  std::set<std::string> reasons_ REWIRE_GUARDED_BY(mutex_);
  std::map<VirtualCommunicator*, uint64_t> free_before_ REWIRE_GUARDED_BY(mutex_);

  // Threads, in the order in which they are joined from the last to the first.
  WorkQueue calls_;  // callbacks to the participant that come from the application's threads
  Loss loss_;
  Retirement retirement_;
  Builder builder_;
};

}  // namespace rewire::shim
