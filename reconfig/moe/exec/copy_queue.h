// A stream on which only copies run: by the copy engines, in one call where the driver has it
// (cuMemcpyBatchAsync, CUDA 13), and words of memory that tell other streams how far it is. For one
// thread at a time; the context of Make() must be current.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::moe {

// What a call of the driver's made, as a status that names it.
[[nodiscard]] absl::Status ToStatus(const CudaDriver& cuda, const char* call, CUresult result);

class CopyQueue {
 public:
  // A stream of its own, of the highest priority.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CopyQueue>> Make(const CudaDriver& cuda);
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  [[nodiscard]] absl::Status After(CUevent event);
  // Until the word has reached the value.
  [[nodiscard]] absl::Status AfterWord(CUdeviceptr word, uint64_t value);
  // Is copied by the next Send(); nothing where there are no bytes.
  void Add(CUdeviceptr target, CUdeviceptr source, uint64_t bytes);
  // In order behind everything before. After a failure what was added is forgotten.
  [[nodiscard]] absl::Status Send();
  [[nodiscard]] absl::Status Write(CUdeviceptr word, uint64_t value);
  [[nodiscard]] CUstream stream() const { return stream_; }
  // That Send() has put into streams so far.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  explicit CopyQueue(const CudaDriver& cuda) : cuda_(cuda) {}
  // False: nothing has been sent, and batches are not tried again.
  [[nodiscard]] bool SendBatch();
  [[nodiscard]] absl::Status SendOneByOne();

  const CudaDriver& cuda_;
  CUstream stream_ = nullptr;
  std::vector<CUdeviceptr> targets_, sources_;
  std::vector<size_t> sizes_;
  bool batches_ = true;
  uint64_t bytes_ = 0;
};

}  // namespace rewire::moe
