// Builds the generations of one epoch, one after the other: initialisation, replay of
// registrations, warm-up. For Builder, on a build thread. The thread may be left inside NCCL at any
// call of BuildTask::InNccl; after such a call the thread must not use this object.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/elastic/protocol/messages.h"
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
  // Returns nullptr when the communicator is missing; *may_come: its creation may still come.
  virtual std::shared_ptr<Chain> Find(const CommunicatorId& id, bool* may_come) = 0;
  // Called when the whole epoch is built. Returns false if a communicator was closed meanwhile.
  virtual bool Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) = 0;
};

class EpochBuild {
 public:
  // stalled: see Builder.
  EpochBuild(Environment* environment, MemoryLedger* ledger, BuildSite* site, milliseconds stalled)
      : nccl_(&environment->nccl),
        services_(environment->services),
        device_(environment->device),
        counters_(&environment->counters),
        ledger_(ledger),
        site_(site),
        stalled_(stalled) {}

  // Builds the task's generations in their order and adds each to the task as soon as there is
  // something to free. *chains: the communicators of the task's generations. `priority` is that of
  // the calling thread.
  absl::Status Run(BuildTask* task, LowPriority* priority,
                   std::vector<std::shared_ptr<Chain>>* chains);

 private:
  // Waits until the communicator exists.
  absl::StatusOr<std::shared_ptr<Chain>> Await(BuildTask* task, const CommunicatorId& id);
  // Checks that the generations that are still to be built fit on the device.
  absl::Status CheckMemory(std::span<const elastic::CommunicatorBuild> builds,
                           DeviceContext context);
  absl::Status BuildOne(BuildTask* task, Chain* chain, const elastic::CommunicatorBuild& build,
                        LowPriority* priority);
  absl::StatusOr<Link*> NewLink(BuildTask* task, Chain* chain,
                                const elastic::CommunicatorBuild& build);
  absl::Status Connect(BuildTask* task, Chain* chain, const elastic::CommunicatorBuild& build,
                       Link* link);
  absl::Status RunBeside(BuildTask* task, Chain* chain, Link* link, void* scratch);
  absl::Status AwaitBeside(BuildTask* task, Chain* chain, DeviceEvent done);
  absl::Status Settle(BuildTask* task, ncclComm_t comm);

  const NcclCalls* const nccl_;
  const ShimServices* const services_;
  Device* const device_;
  CoreCounters* const counters_;
  MemoryLedger* const ledger_;
  BuildSite* const site_;
  const std::shared_ptr<BuildTurns> turns_ = std::make_shared<BuildTurns>();
  const milliseconds stalled_;
};

}  // namespace rewire::shim
