#include "bench/loss/lane.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "bench/storm/nccl_functions.h"

namespace rewire::bench {
namespace {

constexpr size_t kElements = 20000;
constexpr size_t kBytes = kElements * sizeof(int32_t);
// After a fault, rank 0 may never write the unique id, so the other ranks stop waiting earlier.
constexpr Duration kIdPatienceAfterFault = seconds(10);
constexpr Duration kIdPatience = seconds(120);
constexpr milliseconds kIdle(2);
constexpr microseconds kPoll(50);
// The limit of the simulated computation before an operation, in microseconds.
constexpr uint64_t kMaxComputeUs = 2000;

}  // namespace

Lane::Lane(LanePlan plan, int rank_of_job, uint64_t seed, const CudaDriver* cuda,
           const JobFolder* folder, const FaultPage* page, Place* place,
           std::function<void()> first, std::atomic<bool>* failed)
    : plan_(std::move(plan)),
      rank_(plan_.RankOf(rank_of_job)),
      cuda_(cuda),
      folder_(folder),
      place_(place),
      first_(std::move(first)),
      record_(page),
      random_(MixWord(seed, static_cast<uint64_t>(int64_t{plan_.number} * FaultPage::kMostRanks +
                                                  rank_of_job))),
      failed_(failed) {}

Lane::~Lane() {
  if (data_ != 0) cuda_->MemFree(data_);
  if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
}

void Lane::Enter(CallKind kind) {
  place_->Enter(NameOf(kind), steps_, plan_.number);
  record_.Enter(kind, plan_.blocking);
}

void Lane::WaitUntilReady(const char* call, ncclComm_t comm) {
  ncclResult_t error = ncclInProgress;
  while (true) {
    Check("ncclCommGetAsyncError", ncclCommGetAsyncError(comm, &error), nullptr);
    if (error != ncclInProgress) break;
    std::this_thread::sleep_for(kPoll);
  }
  if (error != ncclSuccess) Check(call, error, nullptr);
}

void Lane::Check(const char* call, ncclResult_t result, ncclComm_t comm) {
  if (result == ncclInProgress && comm != nullptr) return WaitUntilReady(call, comm);
  if (result == ncclSuccess) return;
  record_.End(std::string(call) + ": " + ncclGetErrorString(result));
  throw Stop{};
}

void Lane::CheckCuda(const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return;
  record_.End(cuda_->Describe(call, result));
  throw Stop{};
}

void Lane::StopIfAnotherFailed() {
  if (!failed_->load(std::memory_order_acquire)) return;
  record_.End("");
  throw Stop{};
}

void Lane::Compute() {
  Enter(CallKind::kCompute);
  StopIfAnotherFailed();
  std::this_thread::sleep_for(microseconds(random_.Below(kMaxComputeUs)));
}

ncclComm_t Lane::Create() {
  StopIfAnotherFailed();
  const std::string name = "id." + std::to_string(plan_.number) + "." + std::to_string(created_++);
  ncclUniqueId id;
  Enter(CallKind::kRendezvous);
  if (rank_ == 0) {
    Check("ncclGetUniqueId", ncclGetUniqueId(&id), nullptr);
    folder_->Put(name, id);
  } else {
    const Time begun = Now();
    Time fault = Time::max();
    while (!folder_->Get(name, milliseconds(20), &id)) {
      StopIfAnotherFailed();
      if (record_.HasFault() && fault == Time::max()) fault = Now();
      if (fault != Time::max() ? Now() - fault < kIdPatienceAfterFault
                               : Now() - begun < kIdPatience) {
        continue;
      }
      record_.End("rendezvous: unique id " + name + ": not written within " +
                  (fault != Time::max() ? "10 s after the fault" : "120 s"));
      throw Stop{};
    }
  }
  Enter(CallKind::kInit);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = plan_.blocking ? 1 : 0;
  ncclComm_t comm = nullptr;
  const ncclResult_t result =
      ncclCommInitRankConfig(&comm, static_cast<int>(plan_.ranks.size()), id, rank_, &config);
  if (comm != nullptr && (result == ncclSuccess || result == ncclInProgress)) {
    open_.push_back(comm);
  }
  Check("ncclCommInitRankConfig", result, comm);
  return comm;
}

ncclComm_t Lane::Split(ncclComm_t parent) {
  Enter(CallKind::kSplit);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = plan_.blocking ? 1 : 0;
  child_ = nullptr;
  const ncclResult_t result = ncclCommSplit(parent, 0, rank_, &child_, &config);
  Check("ncclCommSplit", result, parent);
  // NCCL also returns ncclSuccess while a non-blocking parent is in progress, and stores the child
  // when the split is complete.
  if (!plan_.blocking) {
    WaitUntilReady("ncclCommSplit", parent);
    WaitUntilReady("ncclCommSplit", child_);
  }
  return child_;
}

void Lane::AwaitStream(ncclComm_t comm) {
  if (plan_.queries) {
    Enter(CallKind::kQuery);
    CUresult state = CUDA_ERROR_NOT_READY;
    while (state == CUDA_ERROR_NOT_READY) {
      WaitUntilReady("ncclCommGetAsyncError", comm);
      state = cuda_->StreamQuery(stream_);
      if (state == CUDA_ERROR_NOT_READY) std::this_thread::sleep_for(kPoll);
    }
    CheckCuda("cuStreamQuery", state);
  } else {
    Enter(CallKind::kSynchronize);
    CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(stream_));
  }
  // After a loss a stream ends with success: only the communicator reports the loss.
  WaitUntilReady("ncclCommGetAsyncError", comm);
}

void Lane::Ring(ncclComm_t comm) {
  const auto ranks = static_cast<int>(plan_.ranks.size());
  void* const data = reinterpret_cast<void*>(data_);
  const size_t half = kElements / 2;
  Check("ncclGroupStart", ncclGroupStart(), nullptr);
  ncclResult_t worst = ncclSuccess;
  const auto add = [&](ncclResult_t result) {
    if (worst == ncclSuccess && result != ncclInProgress) worst = result;
  };
  add(ncclSend(data, half, ncclInt32, (rank_ + 1) % ranks, comm, stream_));
  add(ncclRecv(static_cast<int32_t*>(data) + half, half, ncclInt32, (rank_ + ranks - 1) % ranks,
               comm, stream_));
  const ncclResult_t ended = ncclGroupEnd();
  Check("ncclSend", worst, comm);
  Check("ncclGroupEnd", ended, comm);
}

bool Lane::Operate(ncclComm_t comm) {
  Compute();
  ++steps_;
  int32_t* const asked = host_->word();
  *asked = folder_->Read() == Word::kEnd ? 1 : 0;
  CheckCuda("cuMemcpyHtoDAsync", cuda_->MemcpyHtoDAsync(data_, asked, sizeof *asked, stream_));
  void* const data = reinterpret_cast<void*>(data_);
  Enter(CallKind::kOperation);
  Check(
      "ncclAllReduce",
      ncclAllReduce(data, data, steps_ % 2 == 0 ? 1 : kElements, ncclInt32, ncclMax, comm, stream_),
      comm);
  AwaitStream(comm);
  CheckCuda("cuMemcpyDtoHAsync", cuda_->MemcpyDtoHAsync(asked, data_, sizeof *asked, stream_));
  CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(stream_));
  if (steps_ % 4 == 0) {
    Enter(CallKind::kOperation);
    Ring(comm);
    AwaitStream(comm);
  }
  return *asked != 0;
}

void Lane::Destroy(ncclComm_t comm) {
  // All ranks have the same steps_, so all of them finalize or none does.
  if (!plan_.blocking || steps_ % 2 == 0) {
    Enter(CallKind::kFinalize);
    Check("ncclCommFinalize", ncclCommFinalize(comm), comm);
  }
  Enter(CallKind::kDestroy);
  std::erase(open_, comm);
  if (comm == child_) child_ = nullptr;
  const ncclResult_t result = ncclCommDestroy(comm);
  if (result != ncclInProgress) Check("ncclCommDestroy", result, nullptr);
}

void Lane::Steady() {
  const ncclComm_t comm = Create();
  bool end = Operate(comm);
  first_();
  while (!end) end = Operate(comm);
  Destroy(comm);
}

void Lane::Churn() {
  for (bool end = false; !end;) {
    const ncclComm_t comm = Create();
    end = Operate(comm);
    if (created_ == 1) first_();
    Destroy(comm);
    Compute();
  }
}

void Lane::Splits() {
  const ncclComm_t parent = Create();
  bool end = Operate(parent);
  first_();
  while (!end) {
    const ncclComm_t child = Split(parent);
    end = Operate(child);
    Destroy(child);
    Compute();
  }
  Destroy(parent);
}

void Lane::Idle() {
  const ncclComm_t comm = Create();
  first_();
  while (folder_->Read() != Word::kEnd) {
    Enter(CallKind::kIdlePoll);
    StopIfAnotherFailed();
    WaitUntilReady("ncclCommGetAsyncError", comm);
    std::this_thread::sleep_for(kIdle);
  }
  Destroy(comm);
}

void Lane::Run() {
  try {
    Enter(CallKind::kCompute);
    CheckCuda("cuStreamCreate", cuda_->StreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    CheckCuda("cuMemAlloc", cuda_->MemAlloc(&data_, kBytes));
    host_.emplace(cuda_, sizeof(int32_t));
    CheckCuda("cuMemsetD8Async", cuda_->MemsetD8Async(data_, 0, kBytes, stream_));
    switch (plan_.kind) {
      case LaneKind::kSteady:
        Steady();
        break;
      case LaneKind::kChurn:
        Churn();
        break;
      case LaneKind::kSplits:
        Splits();
        break;
      case LaneKind::kIdle:
        Idle();
        break;
    }
    record_.End("");
  } catch (const Stop&) {
    failed_->store(true, std::memory_order_release);
    if (child_ != nullptr) open_.push_back(child_);
    for (const ncclComm_t comm : open_) {
      place_->Enter("abort after the error", steps_, plan_.number);
      ncclCommAbort(comm);
    }
    place_->Enter("stream after the error", steps_, plan_.number);
    cuda_->StreamSynchronize(stream_);
  }
  record_.CleanedUp();
  place_->End();
}

}  // namespace rewire::bench
