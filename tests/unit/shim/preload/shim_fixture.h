// A process with the shim linked in, over the do-nothing NCCL, and a core that records its calls.
// Owned by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "rewire_nccl_api.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/pool.h"
#include "shim/preload/virtual_communicator.h"
#include "tests/fakes/noop_nccl/noop_nccl.h"

namespace rewire::shim {

inline VirtualCommunicator* V(ncclComm_t handle) {
  return reinterpret_cast<VirtualCommunicator*>(handle);
}
inline NoopComm* RealOf(ncclComm_t handle) {
  return reinterpret_cast<NoopComm*>(V(handle)->current.load()->Real());
}
inline cudaStream_t StreamNumber(uintptr_t n) { return reinterpret_cast<cudaStream_t>(n << 4); }

class ShimTest : public ::testing::Test {
 protected:
  ShimTest();
  ~ShimTest() override;

  // The core's calls, in order: "created", "closing 0", "at 3 depth 0", "before 3 stream 1", "took
  // 100 at 3" (bytes, and the operations issued)...
  static std::vector<std::string> notes;
  // Called by the core's at_cut; default: no more cuts.
  static std::function<ncclResult_t(VirtualCommunicator*, CallSite)> at_cut;
  static int created_gives;
  static const char* last_error;  // of every virtual communicator
  static std::function<void(VirtualCommunicator*)> on_created;
  static uint64_t free_memory;  // of the device; 0: unknown

  void UseCore();
  static ncclComm_t Make(int ranks = 2, int rank = 1, ncclConfig_t* config = nullptr);
  static ncclResult_t AllReduce(ncclComm_t comm, cudaStream_t stream = nullptr) {
    return ncclAllReduce(nullptr, nullptr, 8, ncclFloat, ncclSum, comm, stream);
  }
  // Publishes a next generation with its own real communicator.
  static Generation* Swap(ncclComm_t comm, uint64_t epoch);
  // Frees a generation and ends its real communicator.
  static void Retire(Generation* generation);
};

}  // namespace rewire::shim
