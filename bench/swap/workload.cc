#include "bench/swap/workload.h"

#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "rewire_nccl_api.h"

namespace rewire::bench {

namespace {

// All-reduces of five sizes (elements of 8 bytes), a broadcast, an all-gather, a reduce-scatter.
constexpr size_t kElements[kKinds] = {2, 128, 1024, 4096, 16384, 2048, 2048, 2048};
constexpr size_t kMostElements = 16384;
constexpr uint64_t kMaxRanks = 16;
constexpr size_t kGenerationAt = 0;
constexpr size_t kStopAt = 1;

// Rank 0's value; rank r contributes (r + 1) times this value.
uint64_t Base(uint64_t k, uint64_t i) { return (k * 0x9E3779B1u + i * 0x85EBCA77u + 1) & 0xffffff; }

double ThreadCpuMicroseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

void Must(CUresult result, const char* what) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "swap_perf: %s failed with %d\n", what, static_cast<int>(result));
  exit(1);
}

}  // namespace

Workload::Workload(const CudaDriver* cuda, uint32_t ranks, uint32_t rank)
    : cuda_(cuda),
      ranks_(ranks),
      rank_(rank),
      host_in_(kMostElements),
      host_out_(kMostElements * kMaxRanks) {
  Must(cuda_->StreamCreate(&stream_, 1), "cuStreamCreate");
  Must(cuda_->MemAlloc(&in_, host_in_.size() * 8), "cuMemAlloc");
  Must(cuda_->MemAlloc(&out_, host_out_.size() * 8), "cuMemAlloc");
}

Workload::~Workload() {
  cuda_->MemFree(in_);
  cuda_->MemFree(out_);
  cuda_->StreamDestroy(stream_);
}

void Workload::Fill(uint64_t k, uint64_t generation, bool ask_stop) {
  const size_t n = kElements[k % kKinds];
  for (size_t i = 0; i < n; ++i) host_in_[i] = (rank_ + 1) * Base(k, i);
  if (k % kKinds < 5) {
    host_in_[kGenerationAt] = generation;
    host_in_[kStopAt] = ask_stop ? 1 : 0;
  }
  Must(cuda_->MemcpyHtoDAsync(in_, host_in_.data(), n * 8, stream_), "cuMemcpyHtoDAsync");
  Must(cuda_->StreamSynchronize(stream_), "cuStreamSynchronize");
}

ncclResult_t Workload::Issue(ncclComm_t comm, uint64_t k) {
  const size_t n = kElements[k % kKinds];
  const auto* in = reinterpret_cast<const void*>(in_);
  auto* out = reinterpret_cast<void*>(out_);
  switch (k % kKinds) {
    case 5:
      return ncclBroadcast(in, out, n, ncclUint64, static_cast<int>(k / kKinds % ranks_), comm,
                           stream_);
    case 6:
      return ncclAllGather(in, out, n, ncclUint64, comm, stream_);
    case 7:
      return ncclReduceScatter(in, out, n / ranks_, ncclUint64, ncclSum, comm, stream_);
    default:
      return ncclAllReduce(in, out, n, ncclUint64, ncclSum, comm, stream_);
  }
}

void Workload::Check(uint64_t k, uint64_t generation, Outcome* outcome) {
  const size_t n = kElements[k % kKinds];
  const uint64_t kind = k % kKinds;
  size_t got = n;
  if (kind == 6) got = n * ranks_;
  if (kind == 7) got = n / ranks_;
  Must(cuda_->MemcpyDtoHAsync(host_out_.data(), out_, got * 8, stream_), "cuMemcpyDtoHAsync");
  Must(cuda_->StreamSynchronize(stream_), "cuStreamSynchronize");
  const uint64_t all = ranks_ * (ranks_ + 1) / 2;
  const uint64_t root = k / kKinds % ranks_;
  for (size_t i = 0; i < got; ++i) {
    uint64_t expected = all * Base(k, i);
    if (kind == 5) expected = (root + 1) * Base(k, i);
    if (kind == 6) expected = (i / n + 1) * Base(k, i % n);
    if (kind == 7) expected = all * Base(k, i + rank_ * got);
    if (kind < 5 && i == kGenerationAt) {
      outcome->stale = host_out_[i] != ranks_ * generation;
      continue;
    }
    if (kind < 5 && i == kStopAt) {
      outcome->stop = host_out_[i] != 0;
      continue;
    }
    outcome->wrong |= host_out_[i] != expected;
  }
}

Workload::Outcome Workload::Run(ncclComm_t comm, uint64_t k, uint64_t generation, bool ask_stop) {
  Outcome outcome;
  Fill(k, generation, ask_stop);
  const auto begun = std::chrono::steady_clock::now();
  const double cpu = ThreadCpuMicroseconds();
  outcome.result = Issue(comm, k);
  outcome.call_cpu_us = ThreadCpuMicroseconds() - cpu;
  if (outcome.result != ncclSuccess) return outcome;
  Must(cuda_->StreamSynchronize(stream_), "cuStreamSynchronize");
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  Check(k, generation, &outcome);
  return outcome;
}

}  // namespace rewire::bench
