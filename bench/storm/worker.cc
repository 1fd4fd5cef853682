#include "bench/storm/worker.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "bench/storm/issue.h"
#include "bench/storm/nccl_functions.h"

namespace rewire::bench {
namespace {

constexpr size_t kSlots = 4;
constexpr Duration kForIds = seconds(120);
// Limit between wrong data in a stream and the error that explains it.
constexpr Duration kForReason = seconds(20);

}  // namespace

Worker::Worker(const WorkerOptions& options, const CudaDriver* cuda, const JobFolder* folder,
               Place* place)
    : options_(options),
      cuda_(cuda),
      folder_(folder),
      place_(place),
      script_(options.seed, options.thread, options.ranks, options.features) {}

Worker::~Worker() {
  slots_.clear();
  if (stream_ != nullptr) cuda_->StreamDestroy(stream_);
}

ncclResult_t Worker::AsyncError(const Live& live) const {
  ncclResult_t error = ncclSuccess;
  const ncclResult_t result = ncclCommGetAsyncError(live.handle, &error);
  return result == ncclSuccess ? error : result;
}

void Worker::WaitUntilReady(const char* call, const Live& live) {
  ncclResult_t error = AsyncError(live);
  while (error == ncclInProgress) {
    std::this_thread::yield();
    error = AsyncError(live);
  }
  if (error != ncclSuccess) Check(call, error, nullptr);
}

void Worker::Check(const char* call, ncclResult_t result, const Live* live) {
  if (result == ncclInProgress && live != nullptr) return WaitUntilReady(call, *live);
  if (result == ncclSuccess) return;
  throw Stop{kLost, std::string(call) + ": " + ncclGetErrorString(result) + ": " +
                        ncclGetLastError(live == nullptr ? nullptr : live->handle)};
}

void Worker::CheckCuda(const char* call, bool succeeded) {
  if (!succeeded) throw Stop{kUnexpected, std::string(call) + " failed"};
}

Worker::Live* Worker::Find(int communicator) {
  const auto found = live_.find(communicator);
  return found == live_.end() ? nullptr : &found->second;
}

void Worker::Create(int number, const Member& member) {
  const auto own = std::find(member.ranks.begin(), member.ranks.end(), options_.rank);
  if (own == member.ranks.end()) return;
  const std::string name = "id." + std::to_string(options_.thread) + "." + std::to_string(number);
  ncclUniqueId id;
  if (own == member.ranks.begin()) {
    Check("ncclGetUniqueId", ncclGetUniqueId(&id), nullptr);
    folder_->Put(name, id);
  } else if (!folder_->Get(name, kForIds, &id)) {
    throw Stop{kLost, "unique id " + name + ": the other rank did not write it"};
  }
  Live live;
  live.member = member;
  live.rank = static_cast<int>(own - member.ranks.begin());
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = member.nonblocking ? 0 : 1;
  const ncclResult_t result = ncclCommInitRankConfig(
      &live.handle, static_cast<int>(member.ranks.size()), id, live.rank, &config);
  Check("ncclCommInitRankConfig", result, &live);
  live_[number] = live;
}

void Worker::Split(const Step& step) {
  Live* const parent = Find(step.communicator);
  if (parent == nullptr) return;
  int color = NCCL_SPLIT_NOCOLOR;
  int key = 0;
  Live child;
  for (const auto& [number, member] : step.made) {
    const auto own = std::find(member.ranks.begin(), member.ranks.end(), options_.rank);
    if (own == member.ranks.end()) continue;
    color = number;
    key = child.rank = static_cast<int>(own - member.ranks.begin());
    child.member = member;
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = child.member.nonblocking ? 0 : 1;
  Check("ncclCommSplit", ncclCommSplit(parent->handle, color, key, &child.handle, &config), parent);
  // NCCL also returns ncclSuccess while a non-blocking parent is in progress.
  WaitUntilReady("ncclCommSplit", *parent);
  if (color == NCCL_SPLIT_NOCOLOR) return;
  WaitUntilReady("ncclCommSplit", child);
  live_[color] = child;
}

void Worker::Shrink(const Step& step) {
  Live* const parent = Find(step.communicator);
  const auto& [number, member] = *step.made.begin();
  Live child;
  child.member = member;
  const auto own = std::find(member.ranks.begin(), member.ranks.end(), options_.rank);
  if (parent == nullptr || own == member.ranks.end()) return;
  child.rank = static_cast<int>(own - member.ranks.begin());
  std::vector<int> excluded;
  for (size_t i = 0; i < parent->member.ranks.size(); ++i) {
    const int rank = parent->member.ranks[i];
    if (std::find(member.ranks.begin(), member.ranks.end(), rank) == member.ranks.end()) {
      excluded.push_back(static_cast<int>(i));
    }
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = member.nonblocking ? 0 : 1;
  Check("ncclCommShrink",
        ncclCommShrink(parent->handle, excluded.data(), static_cast<int>(excluded.size()),
                       &child.handle, &config, NCCL_SHRINK_DEFAULT),
        parent);
  WaitUntilReady("ncclCommShrink", *parent);
  WaitUntilReady("ncclCommShrink", child);
  live_[number] = child;
}

void Worker::Remove(const Step& step) {
  Live* const live = Find(step.communicator);
  if (live == nullptr) return;
  if (live->registration != nullptr) {
    Check("ncclCommDeregister", ncclCommDeregister(live->handle, live->registration), live);
  }
  CloseWindow(live);
  const Live removed = *live;
  live_.erase(step.communicator);
  if (step.kind == StepKind::kAbort) {
    // Aborts in the middle of an operation, whose result is ignored: a peer's abort may have come
    // first.
    Slot* const slot = slots_.front().get();
    static_cast<void>(ncclAllReduce(slot->input(), slot->output(), 1000, ncclUint64, ncclSum,
                                    removed.handle, stream_));
    Check("ncclCommAbort", ncclCommAbort(removed.handle), nullptr);
    return;
  }
  if (step.kind == StepKind::kFinalizeAndDestroy) {
    Check("ncclCommFinalize", ncclCommFinalize(removed.handle), &removed);
  }
  const ncclResult_t destroyed = ncclCommDestroy(removed.handle);
  if (destroyed != ncclInProgress) Check("ncclCommDestroy", destroyed, nullptr);
}

void Worker::Register(const Step& step) {
  Live* const live = Find(step.communicator);
  if (live == nullptr) return;
  if (step.kind == StepKind::kRegister && live->registration == nullptr) {
    Slot& slot = *slots_[step.number % slots_.size()];
    const ncclResult_t result =
        ncclCommRegister(live->handle, slot.input(), slot.bytes(), &live->registration);
    Check("ncclCommRegister", result, live);
  }
  if (step.kind == StepKind::kDeregister && live->registration != nullptr) {
    Check("ncclCommDeregister",
          ncclCommDeregister(live->handle, std::exchange(live->registration, nullptr)), live);
  }
}

// All ranks of a communicator open and close its window at the same step.
void Worker::OpenWindow(const Step& step) {
  Live* const live = Find(step.communicator);
  if (live == nullptr || live->window != nullptr) return;
  Synchronize();
  Slot& slot = *slots_[step.number % slots_.size()];
  const ncclResult_t result = ncclCommWindowRegister(live->handle, slot.input(), slot.bytes(),
                                                     &live->window, NCCL_WIN_COLL_SYMMETRIC);
  Check("ncclCommWindowRegister", result, live);
  // NCCL also returns ncclSuccess while a non-blocking communicator is in progress.
  WaitUntilReady("ncclCommWindowRegister", *live);
}

void Worker::CloseWindow(Live* live) {
  if (live == nullptr || live->window == nullptr) return;
  Synchronize();
  Check("ncclCommWindowDeregister",
        ncclCommWindowDeregister(live->handle, std::exchange(live->window, nullptr)), live);
}

Slot* Worker::Prepare(const Live& live, StepKind kind, const Step& step, uint64_t variant) {
  if (pending_.size() == slots_.size()) Synchronize();
  Slot* const slot = slots_[pending_.size()].get();
  Operation operation;
  operation.kind = kind;
  operation.number = 2 * (step.number * 8 + static_cast<uint64_t>(options_.thread)) + variant;
  operation.ranks = live.member.ranks;
  operation.rank = live.rank;
  operation.root = step.root;
  operation.count = step.count;
  CheckCuda("cuMemcpyHtoDAsync", slot->Fill(operation));
  return slot;
}

void Worker::Collective(const Live& live, const Step& step) {
  Slot* const slot = Prepare(live, step.kind, step, 0);
  Check(NameOf(step.kind), Issue(*slot, live.handle, stream_), &live);
  CheckCuda("cuMemcpyDtoHAsync", slot->Fetch());
  pending_.emplace_back(slot, step.communicator);
}

// Issues one group with an all-reduce of each of two communicators, which may be the same.
void Worker::Pair(const Step& step) {
  Synchronize();  // the slots of both are free
  std::vector<std::pair<Live*, Slot*>> parts;
  for (const uint64_t variant : {uint64_t{0}, uint64_t{1}}) {
    const int communicator = variant == 0 ? step.communicator : step.second;
    Live* const live = Find(communicator);
    if (live == nullptr) continue;
    Slot* const slot = Prepare(*live, StepKind::kAllReduce, step, variant);
    parts.emplace_back(live, slot);
    pending_.emplace_back(slot, communicator);
  }
  if (parts.empty()) return;
  Check("ncclGroupStart", ncclGroupStart(), nullptr);
  for (const auto& [live, slot] : parts) {
    const ncclResult_t result = Issue(*slot, live->handle, stream_);
    if (result != ncclInProgress) Check("ncclAllReduce in a group", result, nullptr);
  }
  const ncclResult_t ended = ncclGroupEnd();
  for (const auto& [live, slot] : parts) Check("ncclGroupEnd", ended, live);
  for (const auto& [live, slot] : parts) CheckCuda("cuMemcpyDtoHAsync", slot->Fetch());
}

void Worker::Synchronize() {
  if (pending_.empty()) return;
  CheckCuda("cuStreamSynchronize", cuda_->StreamSynchronize(stream_) == CUDA_SUCCESS);
  for (const auto& [slot, communicator] : std::exchange(pending_, {})) {
    const Live* const live = Find(communicator);
    if (live != nullptr) WaitUntilReady("ncclCommGetAsyncError", *live);
    const uint64_t wrong = slot->CountWrong();
    ++result_.operations;
    if (wrong == 0) continue;
    // After a death streams end with wrong data; the communicator then reports the loss.
    const Time deadline = Now() + kForReason;
    while (Now() < deadline) {
      for (const auto& [number, other] : live_) WaitUntilReady("ncclCommGetAsyncError", other);
      std::this_thread::sleep_for(milliseconds(10));
    }
    throw Stop{kWrong, std::string(NameOf(slot->operation().kind)) + " of communicator " +
                           std::to_string(communicator) + ": " + std::to_string(wrong) +
                           " elements are wrong"};
  }
}

Word Worker::Vote(const Step& step) {
  Synchronize();
  const Live& all = live_.at(0);
  Slot& slot = *slots_.front();
  int32_t* const vote = vote_->word();
  *vote = static_cast<int32_t>(options_.rank == 0 ? folder_->Read() : Word::kChange);
  const auto input = reinterpret_cast<CUdeviceptr>(slot.input());
  CheckCuda("cuMemcpyHtoDAsync",
            cuda_->MemcpyHtoDAsync(input, vote, sizeof *vote, stream_) == CUDA_SUCCESS &&
                cuda_->StreamSynchronize(stream_) == CUDA_SUCCESS);
  place_->Enter(NameOf(step.kind), step.number, 0);
  Check("ncclAllReduce of votes",
        ncclAllReduce(slot.input(), slot.input(), 1, ncclInt32, ncclMax, all.handle, stream_),
        &all);
  CheckCuda("cuMemcpyDtoHAsync",
            cuda_->MemcpyDtoHAsync(vote, input, sizeof *vote, stream_) == CUDA_SUCCESS &&
                cuda_->StreamSynchronize(stream_) == CUDA_SUCCESS);
  WaitUntilReady("ncclCommGetAsyncError", all);
  return static_cast<Word>(*vote);
}

void Worker::Do(const Step& step) {
  switch (step.kind) {
    case StepKind::kSynchronize:
      return Synchronize();
    case StepKind::kCreate:
      Synchronize();
      for (const auto& [number, member] : step.made) Create(number, member);
      return;
    case StepKind::kSplit:
      Synchronize();
      return Split(step);
    case StepKind::kShrink:
      Synchronize();
      return Shrink(step);
    case StepKind::kAbort:
      Synchronize();
      return Remove(step);
    case StepKind::kDestroy:
    case StepKind::kFinalizeAndDestroy:
      return Remove(step);
    case StepKind::kRegister:
    case StepKind::kDeregister:
      return Register(step);
    case StepKind::kOpenWindow:
      return OpenWindow(step);
    case StepKind::kCloseWindow:
      return CloseWindow(Find(step.communicator));
    case StepKind::kPair:
      return Pair(step);
    default:
      if (const Live* const live = Find(step.communicator)) Collective(*live, step);
  }
}

WorkerResult Worker::Run() {
  try {
    CheckCuda("cuStreamCreate",
              cuda_->StreamCreate(&stream_, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    vote_.emplace(cuda_, sizeof(int32_t));
    for (size_t i = 0; i < kSlots; ++i) slots_.push_back(std::make_unique<Slot>(cuda_, stream_));
    place_->Enter("first communicator", 0, 0);
    Create(0, script_.At(0));
    for (Word word = Word::kChange; word != Word::kEnd; ++result_.steps) {
      const Step step = script_.Next(word == Word::kChange);
      place_->Enter(NameOf(step.kind), step.number, step.communicator);
      if (step.kind == StepKind::kVote) {
        word = Vote(step);
      } else {
        Do(step);
      }
    }
    while (!live_.empty()) {
      Step last;
      last.kind = StepKind::kDestroy;
      last.communicator = live_.rbegin()->first;
      place_->Enter("last destroy", result_.steps, last.communicator);
      Remove(last);
    }
  } catch (const Stop& stop) {
    result_.status = stop.status;
    // Printed at once: the next actions of other ranks and threads may be consequences.
    std::fprintf(stderr, "storm: thread %d of rank %d ends at step %llu: %s\n", options_.thread,
                 options_.rank, static_cast<unsigned long long>(result_.steps), stop.text.c_str());
    for (const auto& [number, live] : live_) {
      place_->Enter("abort after a loss", result_.steps, number);
      ncclCommAbort(live.handle);
    }
  }
  place_->Enter("stream after the last communicator", result_.steps, 0);
  if (stream_ != nullptr) cuda_->StreamSynchronize(stream_);
  place_->End();
  return result_;
}

}  // namespace rewire::bench
