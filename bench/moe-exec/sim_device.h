// One simulated GPU and the simulated NCCL in a process of the benchmark, loaded by path and not
// linked. Every failure ends the process with a message. Thread-compatible.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/cuda_driver.h"
#include "tests/simgpu/cuda/extensions.h"

namespace rewire::bench {

class SimDevice {
 public:
  // folder: contains libcuda.so.1 and libnccl.so.2. Device number `ordinal` becomes current.
  SimDevice(const std::string& folder, int ordinal);

  [[nodiscard]] const CudaDriver& cuda() const { return cuda_; }
  [[nodiscard]] CUdeviceptr Allocate(size_t bytes) const;
  [[nodiscard]] CUstream MakeStream() const;
  void Wait(CUstream stream) const;
  // Launches a kernel of `nanoseconds` virtual time that may read and write device memory.
  void Launch(CUstream stream, uint64_t nanoseconds, std::function<void()> kernel) const;
  // Advances the stream's virtual clock to `at_least` and returns the clock. Waits for the stream.
  [[nodiscard]] uint64_t Clock(CUstream stream, uint64_t at_least) const;
  [[nodiscard]] cuSimCounts Counts() const;

  // ---- NCCL: floats, from and to every rank, in one group ----
  [[nodiscard]] ncclUniqueId MakeId() const;
  void Join(const ncclUniqueId& id, int ranks, int rank);
  // The floats for each rank, `sends[r]` of them, are adjacent; so are the received floats.
  void AllToAll(CUstream stream, CUdeviceptr from, const std::vector<size_t>& sends, CUdeviceptr to,
                const std::vector<size_t>& receives);
  void Leave();
  // Returns a hash of all calls into NCCL so far, with the arguments that are equal in every run.
  [[nodiscard]] uint64_t nccl_trace() const { return nccl_trace_; }

 private:
  CudaDriver cuda_{};
  decltype(&cuSimLaunchTimedKernel) launch_ = nullptr;
  decltype(&cuSimAdvanceClock) advance_ = nullptr;
  decltype(&cuSimGetCounts) counts_ = nullptr;
  ncclResult_t (*get_id_)(ncclUniqueId*) = nullptr;
  ncclResult_t (*init_)(ncclComm_t*, int, ncclUniqueId, int) = nullptr;
  ncclResult_t (*destroy_)(ncclComm_t) = nullptr;
  ncclResult_t (*group_start_)() = nullptr;
  ncclResult_t (*group_end_)() = nullptr;
  ncclResult_t (*send_)(const void*, size_t, ncclDataType_t, int, ncclComm_t, CUstream) = nullptr;
  ncclResult_t (*receive_)(void*, size_t, ncclDataType_t, int, ncclComm_t, CUstream) = nullptr;
  ncclComm_t comm_ = nullptr;
  uint64_t nccl_trace_ = 0;
};

}  // namespace rewire::bench
