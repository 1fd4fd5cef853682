#include "reconfig/moe/exec/node_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::moe {
namespace {

constexpr uint64_t kAlign = 512;
constexpr uint64_t kWord = 8;
constexpr uint64_t kTrial = 64;
// Words of 8 bytes. Each slot has a word for the arrival of its weights, of its tokens and of its
// results; each rank has a word for the last round that it used.
constexpr uint64_t kWeightsThere = 0;
constexpr uint64_t kTokensThere = kWeightsThere + kMaxSlots * kWord;
constexpr uint64_t kBackThere = kTokensThere + kMaxSlots * kWord;
constexpr uint64_t kUsed = kBackThere + kMaxSlots * kWord;
constexpr uint64_t kWords = kUsed + kMaxRanks * kWord;

uint64_t Aligned(uint64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

uint64_t NodeMemory::word_bytes() { return kWords; }

NodeMemory::NodeMemory(const CudaDriver& cuda, const Shape& shape)
    : cuda_(cuda), shape_(shape), peers_(kMaxRanks) {
  uint64_t end = Aligned(kWords + kMaxRanks * kTrial);
  const auto take = [&end](uint64_t bytes) {
    const uint64_t begin = end;
    end += Aligned(bytes);
    return begin;
  };
  weights_ = take(shape.slots * shape.weight_bytes);
  tokens_ = take(shape.rows * shape.token_bytes);
  back_ = take(shape.rows * shape.token_bytes);
  results_ = take(shape.rows * shape.token_bytes);
  errors_ = take(shape.grad_bytes > 0 ? shape.rows * shape.token_bytes : 0);
  back_grads_ = take(shape.slots * shape.grad_bytes);
  grads_ = take(shape.slots * shape.grad_bytes);
  bytes_ = end;
}

absl::StatusOr<std::unique_ptr<NodeMemory>> NodeMemory::Allocate(const CudaDriver& cuda,
                                                                 const Shape& shape) {
  std::unique_ptr<NodeMemory> memory(new NodeMemory(cuda, shape));
  CUresult result = cuda.MemAlloc(&memory->memory_, memory->bytes_);
  if (result != CUDA_SUCCESS) {
    memory->memory_ = 0;
    return absl::ResourceExhaustedError(
        absl::StrCat(cuda.Describe("cuMemAlloc", result), " of ", memory->bytes_, " bytes"));
  }
  const char* call = "cuMemsetD8Async";
  result = cuda.MemsetD8Async(memory->memory_, 0, kWords + kMaxRanks * kTrial, CU_STREAM_LEGACY);
  if (result == CUDA_SUCCESS) {
    call = "wait for cuMemsetD8Async";
    result = WaitForStream(cuda, CU_STREAM_LEGACY, kDevicePatience);
  }
  if (result == CUDA_ERROR_NOT_READY) {
    memory->memory_ = 0;  // the device may still write to it
    return absl::DeadlineExceededError(DescribeWait(cuda, call, result, kDevicePatience));
  }
  if (result == CUDA_SUCCESS) {
    call = "cuIpcGetMemHandle";
    result = cuda.IpcGetMemHandle(&memory->handle_, memory->memory_);
  }
  if (result != CUDA_SUCCESS) return absl::UnavailableError(cuda.Describe(call, result));
  return memory;
}

NodeMemory::~NodeMemory() {
  for (const CUdeviceptr peer : peers_) {
    if (peer != 0) (void)cuda_.IpcCloseMemHandle(peer);
  }
  if (memory_ != 0) (void)cuda_.MemFree(memory_);
}

absl::Status NodeMemory::Open(uint32_t rank, const CUipcMemHandle& memory) {
  const CUresult result =
      cuda_.IpcOpenMemHandle(&peers_[rank], memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  peers_[rank] = 0;
  return absl::UnavailableError(
      absl::StrCat(cuda_.Describe("cuIpcOpenMemHandle", result), " of rank ", rank, "'s memory"));
}

CUdeviceptr NodeMemory::Side::weights(uint32_t slot) const {
  return base + layout->weights_ + slot * layout->shape_.weight_bytes;
}
CUdeviceptr NodeMemory::Side::tokens(uint32_t row) const {
  return base + layout->tokens_ + row * layout->shape_.token_bytes;
}
CUdeviceptr NodeMemory::Side::errors(uint32_t row) const {
  return base + layout->errors_ + row * layout->shape_.token_bytes;
}
CUdeviceptr NodeMemory::Side::back(uint32_t row) const {
  return base + layout->back_ + row * layout->shape_.token_bytes;
}
CUdeviceptr NodeMemory::Side::back_grads(uint32_t slot) const {
  return base + layout->back_grads_ + slot * layout->shape_.grad_bytes;
}
CUdeviceptr NodeMemory::Side::weights_there(uint32_t slot) const {
  return base + kWeightsThere + slot * kWord;
}
CUdeviceptr NodeMemory::Side::tokens_there(uint32_t slot) const {
  return base + kTokensThere + slot * kWord;
}
CUdeviceptr NodeMemory::Side::back_there(uint32_t slot) const {
  return base + kBackThere + slot * kWord;
}
CUdeviceptr NodeMemory::Side::used(uint32_t rank) const { return base + kUsed + rank * kWord; }
CUdeviceptr NodeMemory::Side::trial(uint32_t rank) const { return base + kWords + rank * kTrial; }

CUdeviceptr NodeMemory::results(uint32_t row) const {
  return memory_ + results_ + row * shape_.token_bytes;
}
CUdeviceptr NodeMemory::grads(uint32_t slot) const {
  return memory_ + grads_ + slot * shape_.grad_bytes;
}

}  // namespace rewire::moe
