// Memory for one operation of a storm: fills the input, names the buffers, and compares the output
// with the result of all ranks' inputs. Owned by one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/storm/pinned_memory.h"
#include "bench/storm/script.h"
#include "reconfig/abi/cuda_types.h"
#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::bench {

// An operation of one communicator from a rank's view.
struct Operation {
  StepKind kind = StepKind::kAllReduce;
  uint64_t number = 0;  // unique among the operations of a thread
  std::vector<int> ranks;
  int rank = 0;  // in the communicator
  int root = 0;
  size_t count = 0;
};

class Slot {
 public:
  Slot(const CudaDriver* cuda, CUstream stream);
  ~Slot();
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  // Returns this rank's number of elements in an operation, of the type that TypeOf() gives.
  [[nodiscard]] static ncclDataType_t TypeOf(StepKind kind);
  [[nodiscard]] bool Fill(const Operation& operation);
  [[nodiscard]] void* input() const { return reinterpret_cast<void*>(input_); }
  [[nodiscard]] void* output() const { return reinterpret_cast<void*>(output_); }
  [[nodiscard]] size_t bytes() const { return kBytes; }
  // Queues the copy of the output to the host.
  [[nodiscard]] bool Fetch();
  // Call after waiting for the stream. Returns the number of wrong elements.
  [[nodiscard]] uint64_t CountWrong() const;
  [[nodiscard]] const Operation& operation() const { return operation_; }

 private:
  static constexpr size_t kBytes = size_t{4} * 20000 * 8;
  [[nodiscard]] size_t InputCount() const;
  [[nodiscard]] size_t OutputCount() const;
  [[nodiscard]] uint64_t Expected(size_t element) const;

  const CudaDriver* const cuda_;
  const CUstream stream_;
  CUdeviceptr input_ = 0, output_ = 0;
  Operation operation_;
  const PinnedMemory host_in_, host_out_;
};

}  // namespace rewire::bench
