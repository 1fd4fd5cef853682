// The mixed collectives that a member runs. Every element depends on the operation, the position
// and the rank. An operation that is lost, doubled, swapped with another or run by other ranks
// therefore gives wrong sums.
//
// Each all-reduce also carries the epoch of the generation of the member's previous operation. A
// sum that is not (ranks x own) means that two members used different generations for one index.
// Owned by the thread that owns the stream.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

inline constexpr uint32_t kKinds = 8;  // operation k has kind k % kKinds

class Workload {
 public:
  // Makes the stream and the buffers in the current context.
  Workload(const CudaDriver* cuda, uint32_t ranks, uint32_t rank);
  ~Workload();
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  struct Outcome {
    ncclResult_t result = ncclSuccess;
    double call_cpu_us = 0;  // of the NCCL call on this thread
    double seconds = 0;      // from the call to completion
    bool wrong = false;
    bool stale = false;
    bool stop = false;  // a member asked to stop
  };
  // Runs operation k on the communicator. generation: epoch of this member's previous operation.
  Outcome Run(ncclComm_t comm, uint64_t k, uint64_t generation, bool ask_stop);

  [[nodiscard]] cudaStream_t stream() const { return stream_; }

 private:
  ncclResult_t Issue(ncclComm_t comm, uint64_t k);
  void Fill(uint64_t k, uint64_t generation, bool ask_stop);
  void Check(uint64_t k, uint64_t generation, Outcome* outcome);
  void Copy(bool to_device);

  const CudaDriver* const cuda_;
  const uint64_t ranks_;
  const uint64_t rank_;
  cudaStream_t stream_ = nullptr;
  CUdeviceptr in_ = 0;
  CUdeviceptr out_ = 0;
  std::vector<uint64_t> host_in_;
  std::vector<uint64_t> host_out_;
};

}  // namespace rewire::bench
