// This process's ranks of one generation that is being built: their data, and calls of NCCL. For
// EpochBuild, on the builder's thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "shim/core/build_task.h"
#include "shim/core/chain.h"
#include "shim/core/device.h"
#include "shim/core/environment.h"

namespace rewire::shim {

// Makes one call for each rank, in the rank's device context. Several calls are one group: one
// thread that calls for one rank after the other would wait for the others inside NCCL.
template <typename Call>
ncclResult_t ForEachRank(const NcclCalls& nccl, Device* device,
                         std::span<const DeviceContext> contexts, Call&& call) {
  const auto one = [&](size_t i) {
    return device->Enter(contexts[i]).ok() ? call(i) : ncclUnhandledCudaError;
  };
  if (contexts.size() == 1) return one(0);
  // An error of this thread inside the group would not stop NCCL from running the ranks before it.
  for (const DeviceContext context : contexts) {
    if (!device->Enter(context).ok()) return ncclUnhandledCudaError;
  }
  ncclResult_t result = nccl.GroupStart();
  if (result != ncclSuccess) return result;
  for (size_t i = 0; i < contexts.size() && (result == ncclSuccess || result == ncclInProgress);
       ++i) {
    result = one(i);
  }
  const ncclResult_t ended = nccl.GroupEnd();
  return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

inline std::vector<DeviceContext> ContextsOf(std::span<Link* const> links) {
  std::vector<DeviceContext> contexts;
  for (const Link* link : links) contexts.push_back(link->context);
  return contexts;
}

inline std::vector<void*> ScratchOf(std::span<Link* const> links) {
  std::vector<void*> scratch;
  for (const Link* link : links) scratch.push_back(link->scratch);
  return scratch;
}

inline std::vector<Generation*> GenerationsOf(std::span<Link* const> links) {
  std::vector<Generation*> generations;
  for (const Link* link : links) generations.push_back(link->generation);
  return generations;
}

// Returns whether the chain's generations were aborted after a loss.
bool IsLost(Chain* chain);

// Waits until a non-blocking communicator is no longer in progress.
absl::Status Settle(const NcclCalls& nccl, BuildTask* task, ncclComm_t comm);

}  // namespace rewire::shim
