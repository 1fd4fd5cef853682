#include "bench/storm/slot.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bench/storm/nccl_functions.h"
#include "reconfig/base/hash.h"

namespace rewire::bench {
namespace {

// A rank's input value in an element: small, so that sums are exact in float.
uint64_t Value(uint64_t operation, int rank, size_t element) {
  return MixWord(MixWord(operation, static_cast<uint64_t>(rank)), element) % 1000;
}

size_t BytesOf(ncclDataType_t type) { return type == ncclUint64 ? 8 : 4; }

template <typename T>
void Write(char* target, size_t element, uint64_t value) {
  const T typed = static_cast<T>(value);
  std::memcpy(target + element * sizeof typed, &typed, sizeof typed);
}

template <typename T>
bool IsValue(const char* source, size_t element, T value) {
  T typed{};
  std::memcpy(&typed, source + element * sizeof typed, sizeof typed);
  return typed == value;
}

}  // namespace

Slot::Slot(const CudaDriver* cuda, CUstream stream)
    : cuda_(cuda), stream_(stream), host_in_(cuda, kBytes), host_out_(cuda, kBytes) {
  // A window needs memory of this function.
  for (CUdeviceptr* const memory : {&input_, &output_}) {
    void* allocated = nullptr;
    if (const ncclResult_t result = ncclMemAlloc(&allocated, kBytes); result != ncclSuccess) {
      std::fprintf(stderr, "storm: ncclMemAlloc: %s\n", ncclGetErrorString(result));
      std::exit(1);
    }
    *memory = reinterpret_cast<CUdeviceptr>(allocated);
  }
}

Slot::~Slot() {
  for (const CUdeviceptr memory : {input_, output_}) {
    static_cast<void>(ncclMemFree(reinterpret_cast<void*>(memory)));
  }
}

ncclDataType_t Slot::TypeOf(StepKind kind) {
  if (kind == StepKind::kMaximum) return ncclInt32;
  return kind == StepKind::kPreMulSum ? ncclFloat32 : ncclUint64;
}

size_t Slot::InputCount() const {
  const bool each =
      operation_.kind == StepKind::kReduceScatter || operation_.kind == StepKind::kAllToAll;
  return operation_.count * (each ? operation_.ranks.size() : 1);
}

size_t Slot::OutputCount() const {
  const bool each =
      operation_.kind == StepKind::kAllGather || operation_.kind == StepKind::kAllToAll;
  if (operation_.kind == StepKind::kReduce && operation_.rank != operation_.root) return 0;
  return operation_.count * (each ? operation_.ranks.size() : 1);
}

bool Slot::Fill(const Operation& operation) {
  operation_ = operation;
  const int rank = operation.ranks[static_cast<size_t>(operation.rank)];
  const ncclDataType_t type = TypeOf(operation.kind);
  for (size_t i = 0; i < InputCount(); ++i) {
    const uint64_t value = Value(operation.number, rank, i);
    if (type == ncclUint64) Write<uint64_t>(host_in_.data(), i, value);
    if (type == ncclInt32) Write<int32_t>(host_in_.data(), i, value);
    if (type == ncclFloat32) Write<float>(host_in_.data(), i, value);
  }
  return cuda_->MemcpyHtoDAsync(input_, host_in_.data(), InputCount() * BytesOf(type), stream_) ==
             CUDA_SUCCESS &&
         cuda_->MemsetD8Async(output_, 0xa5, OutputCount() * BytesOf(type), stream_) ==
             CUDA_SUCCESS;
}

bool Slot::Fetch() {
  const size_t bytes = OutputCount() * BytesOf(TypeOf(operation_.kind));
  return bytes == 0 ||
         cuda_->MemcpyDtoHAsync(host_out_.data(), output_, bytes, stream_) == CUDA_SUCCESS;
}

uint64_t Slot::Expected(size_t element) const {
  const Operation& o = operation_;
  const auto rank_at = [&](size_t i) { return o.ranks[i % o.ranks.size()]; };
  const auto own = static_cast<size_t>(o.rank);
  uint64_t result = 0;
  switch (o.kind) {
    case StepKind::kBroadcast:
      return Value(o.number, rank_at(static_cast<size_t>(o.root)), element);
    case StepKind::kAllGather:
      return Value(o.number, rank_at(element / o.count), element % o.count);
    case StepKind::kAllToAll:
      return Value(o.number, rank_at(element / o.count), own * o.count + element % o.count);
    case StepKind::kRing:
      return Value(o.number, rank_at(own + o.ranks.size() - 1), element);
    case StepKind::kMaximum:
      for (const int rank : o.ranks) result = std::max(result, Value(o.number, rank, element));
      return result;
    default: {
      const size_t at = element + (o.kind == StepKind::kReduceScatter ? own * o.count : 0);
      for (const int rank : o.ranks) result += Value(o.number, rank, at);
      return result;
    }
  }
}

uint64_t Slot::CountWrong() const {
  uint64_t wrong = 0;
  const ncclDataType_t type = TypeOf(operation_.kind);
  for (size_t i = 0; i < OutputCount(); ++i) {
    const uint64_t value = Expected(i);
    const char* const out = host_out_.data();
    bool right = false;
    if (type == ncclUint64) right = IsValue<uint64_t>(out, i, value);
    if (type == ncclInt32) right = IsValue<int32_t>(out, i, static_cast<int32_t>(value));
    // Each rank's input is scaled by one half.
    if (type == ncclFloat32) right = IsValue<float>(out, i, static_cast<float>(value) / 2);
    wrong += right ? 0 : 1;
  }
  return wrong;
}

}  // namespace rewire::bench
