// Builds the generations of one epoch, one after the other: initialisation, replay of
// registrations, warm-up. The ranks that this process has in one generation are built together, in
// NCCL groups, because they need one another. For Builder, on a build thread. The thread may be
// left inside NCCL at any call of BuildTask::InNccl; after such a call the thread must not use this
// object.
//
// A build begins when nothing is being destroyed. A free waits for the device, and as far as is
// known it keeps the driver's lock. Beside a build's first operation this can deadlock: its kernel
// waits for the peer's kernel, whose launch waits for a free. That free waits for a kernel of the
// program, and the launch of its peer waits for a free behind the first kernel.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/beside_run.h"
#include "shim/core/build_task.h"
#include "shim/core/build_thread.h"
#include "shim/core/chain.h"
#include "shim/core/environment.h"
#include "shim/core/memory_ledger.h"

namespace rewire::shim {

// Finds a build's communicators and takes built generations. Called on a build thread.
class BuildSite {
 public:
  virtual ~BuildSite() = default;
  // Returns the communicator's ranks in this process, in ascending order. *may_come: the creation
  // of a missing rank may still come.
  virtual std::vector<std::shared_ptr<Chain>> Find(const CommunicatorId& id, bool* may_come) = 0;
  // Returns whether no generation is being destroyed or aborted. What is due is then destroyed at
  // once.
  virtual bool Quiet() = 0;
  // Lets no destruction begin until Resume(). Returns false, and lets them begin, if a generation
  // is being destroyed or aborted. If that has lasted for REWIRE_BUILD_MS, it may have no end,
  // and the result is true.
  virtual bool Hold() = 0;
  // The build has ended, or its thread was left inside NCCL. Also called without Hold().
  virtual void Resume() = 0;
  // Called when the whole epoch is built. Returns false if a communicator was closed meanwhile.
  virtual bool Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) = 0;
};

class EpochBuild {
 public:
  // stalled: see BesideRun.
  EpochBuild(Environment* environment, MemoryLedger* ledger, BuildSite* site, milliseconds stalled)
      : nccl_(&environment->nccl),
        services_(environment->services),
        device_(environment->device),
        counters_(&environment->counters),
        ledger_(ledger),
        site_(site),
        beside_(environment, stalled) {}

  // Builds the task's generations in their order and adds each to the task as soon as there is
  // something to free. *chains: the communicators of the task's generations. `priority` is that of
  // the calling thread.
  absl::Status Run(BuildTask* task, LowPriority* priority,
                   std::vector<std::shared_ptr<Chain>>* chains);

 private:
  using Chains = std::vector<std::shared_ptr<Chain>>;
  // This process's ranks of the generation that is being built.
  using Ranks = std::span<Link* const>;

  // Waits until the communicator exists with all its ranks in this process.
  absl::StatusOr<Chains> Await(BuildTask* task, const elastic::CommunicatorBuild& build);
  // Waits until nothing is being destroyed or aborted, for half of the build's time at most: NCCL
  // may wait in a destruction for a peer that does not come. After a quarter, a destruction that
  // waits for the program's last operation is postponed.
  absl::Status AwaitQuiet(BuildTask* task);
  // Checks that the generations that are still to be built fit on their devices, as far as the
  // communicators exist. Returns the bytes that they are expected to take, on all devices.
  absl::StatusOr<uint64_t> CheckMemory(std::span<const elastic::CommunicatorBuild> builds);
  // Returns the free memory of each communicator's device.
  absl::StatusOr<std::vector<uint64_t>> FreeBytes(const Chains& chains);
  // *taken grows by the bytes that the generation took.
  absl::Status BuildOne(BuildTask* task, const Chains& chains,
                        const elastic::CommunicatorBuild& build, LowPriority* priority,
                        uint64_t* taken);
  absl::StatusOr<Link*> NewLink(BuildTask* task, Chain* chain,
                                const elastic::CommunicatorBuild& build, uint32_t rank);
  absl::Status Connect(BuildTask* task, const Chains& chains,
                       const elastic::CommunicatorBuild& build, Ranks links);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  MemoryLedger* const ledger_;
  BuildSite* const site_;
  BesideRun beside_;
};

}  // namespace rewire::shim
