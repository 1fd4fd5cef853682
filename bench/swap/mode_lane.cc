#include "bench/swap/mode_lane.h"

#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/storm/issue.h"
#include "bench/storm/nccl_functions.h"
#include "bench/swap/spy/current_operation.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {
namespace {

thread_local CurrentOperation current;

constexpr size_t kSlotsOfStream = 4;
constexpr size_t kCounts[] = {1, 3, 64, 1000, 4096};
constexpr size_t kTimedCount = 1000;
// Reserved at once: a soak measures the growth of the process.
constexpr size_t kMostTimes = size_t{1} << 18;
constexpr Duration kForIds = seconds(120);

}  // namespace

extern "C" const CurrentOperation* swap_current_operation() { return &current; }

ModeLane::ModeLane(const LanePlan& plan, int rank, const CudaDriver* cuda, CUcontext context)
    : plan_(plan), rank_(rank), cuda_(cuda), context_(context) {
  CheckCuda("cuCtxSetCurrent", cuda_->CtxSetCurrent(context_));
  for (int i = 0; i < plan_.streams; ++i) {
    CUstream stream = nullptr;
    CheckCuda("cuStreamCreate", cuda_->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    streams_.push_back(stream);
    slots_.emplace_back();
    for (size_t k = 0; k < kSlotsOfStream; ++k) {
      slots_.back().push_back(std::make_unique<Slot>(cuda_, stream));
    }
  }
  if (plan_.timed) times_.reserve(kMostTimes);
  CheckCuda("cuMemAlloc", cuda_->MemAlloc(&vote_, sizeof(int32_t)));
  host_vote_.emplace(cuda_, sizeof(int32_t));
}

ModeLane::~ModeLane() {
  cuda_->CtxSetCurrent(context_);
  slots_.clear();
  host_vote_.reset();
  cuda_->MemFree(vote_);
  for (const CUstream stream : streams_) cuda_->StreamDestroy(stream);
}

void ModeLane::CheckCuda(const char* call, CUresult result) const {
  if (result != CUDA_SUCCESS) throw LaneFailed(cuda_->Describe(call, result));
}

void ModeLane::Check(const char* call, ncclResult_t result, bool in_group) {
  if (result == ncclInProgress) {
    if (!in_group) Settle();
    return;
  }
  if (result == ncclSuccess) return;
  throw LaneFailed(absl::StrCat(call, " on communicator ", plan_.number, ": ",
                                ncclGetErrorString(result), ": ", ncclGetLastError(comm_)));
}

void ModeLane::Settle() {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclInProgress) std::this_thread::yield();
  }
  Check("ncclCommGetAsyncError", state, false);
}

void ModeLane::Create(const JobFolder& folder) {
  CheckCuda("cuCtxSetCurrent", cuda_->CtxSetCurrent(context_));
  const std::string name = absl::StrCat("id.", plan_.number, ".", made_++);
  ncclUniqueId id;
  if (rank_ == 0) {
    Check("ncclGetUniqueId", ncclGetUniqueId(&id), false);
    folder.Put(name, id);
  } else if (!folder.Get(name, kForIds, &id)) {
    throw LaneFailed(absl::StrCat(name, ": no other rank wrote it"));
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = plan_.nonblocking ? 0 : 1;
  Check("ncclCommInitRankConfig",
        ncclCommInitRankConfig(&comm_, static_cast<int>(plan_.ranks.size()), id, rank_, &config),
        true);
}

void ModeLane::Announce(const void* input, const void* output) const {
  current = {plan_.number, static_cast<uint32_t>(rank_), issued_, input, output};
}

void ModeLane::Issue(bool in_group) {
  CheckCuda("cuCtxSetCurrent", cuda_->CtxSetCurrent(context_));
  const size_t stream = issued_ % streams_.size();
  std::vector<std::unique_ptr<Slot>>& slots = slots_[stream];
  if (pending_.size() == kSlotsOfStream * streams_.size()) Verify();
  Slot* const slot = slots[issued_ / streams_.size() % slots.size()].get();
  Operation operation;
  operation.kind = plan_.kinds[issued_ % plan_.kinds.size()];
  operation.number = uint64_t{plan_.number} << 40 | issued_;
  operation.ranks = plan_.ranks;
  operation.rank = rank_;
  operation.root = static_cast<int>(issued_ % plan_.ranks.size());
  operation.count = plan_.timed ? kTimedCount : kCounts[issued_ % std::size(kCounts)];
  if (!slot->Fill(operation)) throw LaneFailed("the input's copy to the device failed");
  Announce(slot->input(), slot->output());
  const Time begun = Now();
  Check(NameOf(operation.kind), bench::Issue(*slot, comm_, streams_[stream]), in_group);
  if (plan_.timed) {
    CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(streams_[stream]));
    if (times_.size() < kMostTimes) {
      times_.push_back(
          {operation.kind, issued_, static_cast<uint64_t>(ToNanoseconds(Now() - begun))});
    }
  }
  current = {};
  ++issued_;
  last_ = slot;
  if (!in_group) Fetch();
}

void ModeLane::Fetch() {
  if (last_ == nullptr) return;
  CheckCuda("cuCtxSetCurrent", cuda_->CtxSetCurrent(context_));
  if (!last_->Fetch()) throw LaneFailed("the output's copy to the host failed");
  pending_.push_back(std::exchange(last_, nullptr));
}

void ModeLane::Verify() {
  for (const CUstream stream : streams_) {
    CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(stream));
  }
  for (const Slot* slot : std::exchange(pending_, {})) {
    ++verified_;
    if (slot->CountWrong() > 0) ++wrong_;
  }
}

void ModeLane::Vote(int32_t value) {
  CheckCuda("cuCtxSetCurrent", cuda_->CtxSetCurrent(context_));
  *host_vote_->word() = value;
  CheckCuda("cuMemcpyHtoDAsync",
            cuda_->MemcpyHtoDAsync(vote_, host_vote_->word(), sizeof value, streams_.front()));
  CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(streams_.front()));
  auto* const buffer = reinterpret_cast<void*>(vote_);
  Check("ncclAllReduce of a vote",
        ncclAllReduce(buffer, buffer, 1, ncclInt32, ncclMax, comm_, streams_.front()), true);
}

int32_t ModeLane::Agreed() {
  if (plan_.nonblocking) Settle();
  int32_t* const value = host_vote_->word();
  CheckCuda("cuMemcpyDtoHAsync",
            cuda_->MemcpyDtoHAsync(value, vote_, sizeof *value, streams_.front()));
  CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(streams_.front()));
  return *value;
}

void ModeLane::Destroy() {
  Verify();
  CheckCuda("cuCtxSetCurrent", cuda_->CtxSetCurrent(context_));
  const ncclResult_t result = ncclCommDestroy(comm_);
  if (result != ncclInProgress) Check("ncclCommDestroy", result, false);
}

}  // namespace rewire::bench
