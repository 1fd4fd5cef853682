#include "reconfig/moe/exec/copy_queue.h"

#include <numeric>

#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {

absl::Status ToStatus(const CudaDriver& cuda, const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::UnavailableError(cuda.Describe(call, result));
}

absl::StatusOr<std::unique_ptr<CopyQueue>> CopyQueue::Make(const CudaDriver& cuda) {
  std::unique_ptr<CopyQueue> queue(new CopyQueue(cuda));
  int least = 0, greatest = 0;
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda, "cuCtxGetStreamPriorityRange",
                                  cuda.CtxGetStreamPriorityRange(&least, &greatest)));
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda, "cuStreamCreateWithPriority",
               cuda.StreamCreateWithPriority(&queue->stream_, CU_STREAM_NON_BLOCKING, greatest)));
  return queue;
}

CopyQueue::~CopyQueue() {
  if (stream_ != nullptr) (void)cuda_.StreamDestroy(stream_);
}

absl::Status CopyQueue::After(CUevent event) {
  return ToStatus(cuda_, "cuStreamWaitEvent", cuda_.StreamWaitEvent(stream_, event, 0));
}

absl::Status CopyQueue::AfterWord(CUdeviceptr word, uint64_t value) {
  return ToStatus(cuda_, "cuStreamWaitValue64",
                  cuda_.StreamWaitValue64(stream_, word, value, CU_STREAM_WAIT_VALUE_GEQ));
}

void CopyQueue::Add(CUdeviceptr target, CUdeviceptr source, uint64_t bytes) {
  if (bytes == 0) return;
  targets_.push_back(target);
  sources_.push_back(source);
  sizes_.push_back(bytes);
}

absl::Status CopyQueue::Send() {
  if (targets_.empty()) return absl::OkStatus();
  const absl::Status sent = batches_ && SendBatch() ? absl::OkStatus() : SendOneByOne();
  if (sent.ok()) bytes_ += std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0});
  targets_.clear();
  sources_.clear();
  sizes_.clear();
  return sent;
}

bool CopyQueue::SendBatch() {
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  attributes.flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
  size_t first = 0;
  const CUresult result = cuda_.MemcpyBatchAsync(targets_.data(), sources_.data(), sizes_.data(),
                                                 targets_.size(), &attributes, &first, 1, stream_);
  if (result == CUDA_SUCCESS) return true;
  batches_ = false;
  if (result != CUDA_ERROR_NOT_SUPPORTED) {
    REWIRE_WARN("moe: copies are issued one by one: %s",
                cuda_.Describe("cuMemcpyBatchAsync", result).c_str());
  }
  return false;
}

absl::Status CopyQueue::SendOneByOne() {
  for (size_t i = 0; i < targets_.size(); ++i) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuMemcpyDtoDAsync",
                 cuda_.MemcpyDtoDAsync(targets_[i], sources_[i], sizes_[i], stream_)));
  }
  return absl::OkStatus();
}

absl::Status CopyQueue::Write(CUdeviceptr word, uint64_t value) {
  return ToStatus(cuda_, "cuStreamWriteValue64",
                  cuda_.StreamWriteValue64(stream_, word, value, CU_STREAM_WRITE_VALUE_DEFAULT));
}

}  // namespace rewire::moe
