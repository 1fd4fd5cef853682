// A stream that only runs copies, on the copy engines, in one call if the driver has it
// (cuMemcpyBatchAsync, CUDA 13). Words in memory tell other streams about its progress.
// Thread-compatible; the context of Make() must be current in every call.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::moe {

// Returns the result of a driver call as a status that names the call.
[[nodiscard]] absl::Status ToStatus(const CudaDriver& cuda, const char* call, CUresult result);

class CopyQueue {
 public:
  // Makes a queue with its own stream of the highest priority.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<CopyQueue>> Make(const CudaDriver& cuda);
  ~CopyQueue();
  CopyQueue(const CopyQueue&) = delete;
  CopyQueue& operator=(const CopyQueue&) = delete;

  [[nodiscard]] absl::Status After(CUevent event);
  // Waits, in stream order, until the word has reached the value.
  [[nodiscard]] absl::Status AfterWord(CUdeviceptr word, uint64_t value);
  // Queues a copy for the next Send(); does nothing if `bytes` is 0.
  void Add(CUdeviceptr target, CUdeviceptr source, uint64_t bytes);
  // Sends the queued copies after all earlier work of the stream. A failure drops the copies.
  [[nodiscard]] absl::Status Send();
  [[nodiscard]] absl::Status Write(CUdeviceptr word, uint64_t value);
  [[nodiscard]] CUstream stream() const { return stream_; }
  // Returns the bytes that Send() has put into the stream so far.
  [[nodiscard]] uint64_t bytes() const { return bytes_; }

 private:
  explicit CopyQueue(const CudaDriver& cuda) : cuda_(cuda) {}
  // Returns false if nothing has been sent; batches are then not tried again.
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
