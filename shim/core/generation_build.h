// Builds one generation: initialisation, replay of registrations, warm-up. For Builder, on a build
// thread. The thread may be left inside NCCL at any call of BuildTask::InNccl; after such a call
// the thread must not use this object.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/build_task.h"
#include "shim/core/build_turn.h"
#include "shim/core/chain.h"
#include "shim/core/core_counters.h"
#include "shim/core/device.h"
#include "shim/core/memory_ledger.h"
#include "shim/core/nccl_calls.h"
#include "shim/core/thread_priority.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

std::string Name(const CommunicatorId& id);

class GenerationBuild {
 public:
  GenerationBuild(const NcclCalls* nccl, const ShimServices* services, Device* device,
                  CoreCounters* counters, MemoryLedger* ledger, milliseconds stalled)
      : nccl_(nccl),
        services_(services),
        device_(device),
        counters_(counters),
        ledger_(ledger),
        stalled_(stalled) {}

  // Adds the generation to the task as soon as there is something to free. `priority` is that of
  // the calling thread.
  absl::Status Run(BuildTask* task, Chain* chain, const elastic::CommunicatorBuild& build,
                   LowPriority* priority);

 private:
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
  const std::shared_ptr<BuildTurns> turns_ = std::make_shared<BuildTurns>();
  const milliseconds stalled_;
};

}  // namespace rewire::shim
