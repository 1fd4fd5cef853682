// One simulated GPU and the simulated NCCL, as a process of the benchmark has them: loaded by path,
// so that nothing of them is linked. Every failure ends the process by name: a benchmark has
// nothing to fall back on. One thread.
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
  // folder: of libcuda.so.1 and libnccl.so.2. Device number `ordinal` becomes current.
  SimDevice(const std::string& folder, int ordinal);

  [[nodiscard]] const CudaDriver& cuda() const { return cuda_; }
  [[nodiscard]] CUdeviceptr Allocate(size_t bytes) const;
  [[nodiscard]] CUstream MakeStream() const;
  void Wait(CUstream stream) const;
  // A kernel that takes so long in virtual time. Device memory can be read and written in it.
  void Launch(CUstream stream, uint64_t nanoseconds, std::function<void()> kernel) const;
  // Moves the stream's virtual clock forward; gives it. Waits for the stream.
  [[nodiscard]] uint64_t Clock(CUstream stream, uint64_t at_least) const;
  [[nodiscard]] cuSimCounts Counts() const;

  // ---- NCCL: floats, from and to every rank, in one group ----
  [[nodiscard]] ncclUniqueId MakeId() const;
  void Join(const ncclUniqueId& id, int ranks, int rank);
  // Rank r's `sends[r]` floats lie one behind another, and so does what is received.
  void AllToAll(CUstream stream, CUdeviceptr from, const std::vector<size_t>& sends, CUdeviceptr to,
                const std::vector<size_t>& receives);
  void Leave();
  // Of every call into NCCL so far, with its arguments that are the same in another run.
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
