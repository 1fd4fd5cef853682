// The process around the core, as every part of the core sees it: the real NCCL, the preloaded
// library's services, the device, the counters and the gate that is closed at exit. Made by
// ShimCommunicators; the core's tests script the first three. Constant except for the last two, and
// thread-safe.
#pragma once

#include <memory>
#include <string>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/counters.h"
#include "shim/core/device.h"
#include "shim/core/exit_gate.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

// The real NCCL functions that the core itself calls. Filled once from the preloaded library's
// table; constant afterwards.
struct NcclCalls {
  ncclResult_t (*GetUniqueId)(ncclUniqueId*) = nullptr;
  ncclResult_t (*CommInitRankConfig)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*) = nullptr;
  ncclResult_t (*CommFinalize)(ncclComm_t) = nullptr;
  ncclResult_t (*CommDestroy)(ncclComm_t) = nullptr;
  ncclResult_t (*CommAbort)(ncclComm_t) = nullptr;
  ncclResult_t (*CommGetAsyncError)(ncclComm_t, ncclResult_t*) = nullptr;
  const char* (*GetLastError)(ncclComm_t) = nullptr;
  ncclResult_t (*GroupStart)() = nullptr;
  ncclResult_t (*GroupEnd)() = nullptr;
  ncclResult_t (*GroupSimulateEnd)(ncclSimInfo_t*) = nullptr;  // nullptr: the library lacks it
  ncclResult_t (*AllReduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                            cudaStream_t) = nullptr;
  ncclResult_t (*Broadcast)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                            cudaStream_t) = nullptr;
  ncclResult_t (*Reduce)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int, ncclComm_t,
                         cudaStream_t) = nullptr;
  ncclResult_t (*AllGather)(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                            cudaStream_t) = nullptr;
  ncclResult_t (*ReduceScatter)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                                cudaStream_t) = nullptr;
  ncclResult_t (*Send)(const void*, size_t, ncclDataType_t, int, ncclComm_t,
                       cudaStream_t) = nullptr;
  ncclResult_t (*Recv)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) = nullptr;

  // True for a library that sets the abort flags in ncclCommAbort and frees at the end of the group
  // around the call; see loss.h.
  bool abort_frees_at_group_end = false;

  static NcclCalls From(const RealNccl& real);

  // Returns "ncclResult=2" with the text of the process's last error in NCCL, which is usually the
  // error of this result. Only for messages: other threads may be writing the text.
  [[nodiscard]] std::string Describe(ncclResult_t result) const;
};

// The core's counters, which are part of the process's (reconfig/base/counters.h), and for tests.
// Thread-safe.
struct CoreCounters {
  Counted swaps{Counter::kShimSwaps};
  Counted stale_prevented{Counter::kShimStalePrevented};
  Counted host_waits{Counter::kShimHostWaits};
  Counted builds{Counter::kShimBuilds};
  Counted failed_builds{Counter::kShimFailedBuilds};
  Counted build_ns{Counter::kShimBuildTime};
  Counted warmed_classes{Counter::kShimWarmedClasses};
  Counted warmed_beside{Counter::kShimWarmedBeside};
  Counted beside_refused{Counter::kShimBesideRefused};
  Counted retired{Counter::kShimRetired};
  Counted aborted{Counter::kShimAborted};
  Counted nice_refused{Counter::kShimNiceRefused};
};

struct Environment {
  const NcclCalls nccl;
  const ShimServices* const services;  // must outlive the environment
  Device* const device;                // must outlive the environment
  CoreCounters counters;
  // A thread that was left inside NCCL may outlive the environment.
  const std::shared_ptr<ExitGate> exit_gate = std::make_shared<ExitGate>();
};

}  // namespace rewire::shim
