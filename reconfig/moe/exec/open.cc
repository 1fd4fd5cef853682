// Opens and closes a balancer: meets the other processes, tests the path to each, and leaves after
// all have finished. Called on the framework's thread.
#include <algorithm>
#include <array>
#include <thread>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/exec/balancer.h"

namespace rewire::moe {
namespace {

// Stages of NodePage::Meet.
constexpr uint32_t kMapped = 1;
constexpr uint32_t kTried = 2;
constexpr uint32_t kThrough = 3;
// Limit of the wait in Leave() for copies in flight and for the other processes to finish.
constexpr Duration kLeaving = seconds(10);
constexpr Duration kPoll = milliseconds(1);
constexpr size_t kTrialBytes = 64;

unsigned char TrialByte(uint32_t rank) { return static_cast<unsigned char>(0x51 + rank); }

absl::Status CheckOptions(const BalancerOptions& options) {
  if (options.late_rounds > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("late_rounds=0: must be at least 1");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Balancer>> Balancer::Open(const CudaDriver& cuda,
                                                         const NodeGroup& group, const Shape& shape,
                                                         const BalancerOptions& options) {
  REWIRE_RETURN_IF_ERROR(moe::Check(group));
  REWIRE_RETURN_IF_ERROR(moe::Check(shape));
  REWIRE_RETURN_IF_ERROR(CheckOptions(options));
  CUcontext context = nullptr;
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda, "cuCtxGetCurrent", cuda.CtxGetCurrent(&context)));
  if (context == nullptr) {
    return absl::FailedPreconditionError("no CUDA context is current in this thread");
  }
  std::unique_ptr<Balancer> balancer(new Balancer(cuda, group, shape, options, context));
  if (absl::Status prepared = balancer->Prepare(); !prepared.ok()) {
    if (balancer->page_ != nullptr) balancer->page_->Fail();
    return prepared;
  }
  REWIRE_INFO("moe: %s: rank %u of %u moves up to %u experts per round, with %llu bytes of memory",
              group.name.c_str(), group.rank, group.ranks, balancer->counts().copies,
              static_cast<unsigned long long>(balancer->memory_->bytes()));
  return balancer;
}

Balancer::Balancer(const CudaDriver& cuda, const NodeGroup& group, const Shape& shape,
                   const BalancerOptions& options, CUcontext context)
    : cuda_(cuda),
      group_(group),
      shape_(shape),
      options_(options),
      context_(context),
      dynamic_(shape.experts),
      theirs_(group.ranks),
      postings_(group.ranks),
      lateness_(options.copies != 0 ? options.copies : shape.slots * group.ranks,
                options.late_rounds) {
  for (Posting& posting : postings_) {
    posting.tokens.resize(shape.experts);
    posting.dynamic.resize(shape.experts);
    posting.slots.resize(shape.slots);
  }
}

absl::Status Balancer::Prepare() {
  const Time deadline = Now() + options_.meeting;
  REWIRE_ASSIGN_OR_RETURN(memory_, NodeMemory::Allocate(cuda_, shape_));
  for (std::unique_ptr<CopyQueue>* queue : {&out_, &back_, &let_go_}) {
    REWIRE_ASSIGN_OR_RETURN(*queue, CopyQueue::Make(cuda_));
  }
  waits_.resize(shape_.slots);
  there_.resize(shape_.slots);
  std::vector<CUevent*> events = {&begun_,     &closed_,      &collects_,
                                  &collected_, &gives_begin_, &gives_end_};
  for (std::vector<CUevent>* some : {&waits_, &there_}) {
    for (CUevent& event : *some) events.push_back(&event);
  }
  for (CUevent* event : events) {
    REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuEventCreate", cuda_.EventCreate(event, 0)));
  }
  for (CUevent* event : {&computed_, &returned_}) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuEventCreate", cuda_.EventCreate(event, CU_EVENT_DISABLE_TIMING)));
  }
  REWIRE_ASSIGN_OR_RETURN(page_, NodePage::Join(group_, shape_, memory_->handle(), deadline));
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank != group_.rank) REWIRE_RETURN_IF_ERROR(memory_->Open(rank, page_->memory(rank)));
  }
  REWIRE_RETURN_IF_ERROR(page_->Meet(kMapped, deadline));
  REWIRE_RETURN_IF_ERROR(TryPaths(deadline));
  REWIRE_RETURN_IF_ERROR(page_->Meet(kTried, deadline));
  thread_ = std::thread([this] { Run(); });
  looking_ = std::thread([this] { Look(); });
  MutexLock lock(&mutex_);
  reported_.Set(Counts());
  return absl::OkStatus();
}

// Sends every other process a few bytes and a word, as in a round, and checks the received bytes.
absl::Status Balancer::TryPaths(Time deadline) {
  const NodeMemory::Side own = memory_->own();
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuMemsetD8Async",
               cuda_.MemsetD8Async(own.trial(group_.rank), TrialByte(group_.rank), kTrialBytes,
                                   out_->stream())));
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank) continue;
    const NodeMemory::Side peer = memory_->peer(rank);
    out_->Add(peer.trial(group_.rank), own.trial(group_.rank), kTrialBytes);
    REWIRE_RETURN_IF_ERROR(out_->Send());
    REWIRE_RETURN_IF_ERROR(out_->Write(peer.used(group_.rank), 1));
  }
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank) continue;
    uint64_t word = 0;
    while (word == 0) {
      REWIRE_RETURN_IF_ERROR(
          ToStatus(cuda_, "cuMemcpyDtoH", cuda_.MemcpyDtoH(&word, own.used(rank), sizeof word)));
      if (word != 0) break;
      if (Now() >= deadline || page_->FindLost()) {
        return absl::UnavailableError(absl::StrCat("trial copy from rank ", rank,
                                                   ": not received in time, or the rank is lost"));
      }
      std::this_thread::sleep_for(kPoll);
    }
    std::array<unsigned char, kTrialBytes> bytes{};
    REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuMemcpyDtoH",
                                    cuda_.MemcpyDtoH(bytes.data(), own.trial(rank), kTrialBytes)));
    if (std::any_of(bytes.begin(), bytes.end(),
                    [rank](unsigned char b) { return b != TrialByte(rank); })) {
      return absl::DataLossError(absl::StrCat("trial copy from rank ", rank, ": wrong bytes"));
    }
  }
  // All words have arrived, so a stream that waits for one of the words continues at once.
  REWIRE_RETURN_IF_ERROR(back_->AfterWord(own.used((group_.rank + 1) % group_.ranks), 1));
  while (true) {
    const CUresult passed = cuda_.StreamQuery(back_->stream());
    if (passed != CUDA_ERROR_NOT_READY) return ToStatus(cuda_, "cuStreamQuery", passed);
    if (Now() >= deadline) {
      return absl::UnavailableError(
          "trial of cuStreamWaitValue64: the waiting stream did not see the value in time");
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void Balancer::Leave() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  page_->WakeOwn();
  thread_.join();
  // Own copies, and the copies that the caller's stream waits for.
  const auto through = [this] {
    return cuda_.StreamQuery(out_->stream()) != CUDA_ERROR_NOT_READY &&
           cuda_.StreamQuery(back_->stream()) != CUDA_ERROR_NOT_READY &&
           cuda_.EventQuery(collected_) != CUDA_ERROR_NOT_READY &&
           std::none_of(there_.begin(), there_.end(), [this](CUevent there) {
             return cuda_.EventQuery(there) == CUDA_ERROR_NOT_READY;
           });
  };
  const Time deadline = Now() + kLeaving;
  while (!through() && Now() < deadline) std::this_thread::sleep_for(kPoll);
  // Other processes may still write to the memory that Leave() releases.
  if (Check().ok()) (void)page_->Meet(kThrough, deadline);
  {
    MutexLock lock(&look_mutex_);
    stop_looking_ = true;
    look_soon_.NotifyAll();
  }
  looking_.join();
}

Balancer::~Balancer() {
  if (looking_.joinable()) Leave();
  std::vector<CUevent> events = {begun_,       closed_,    collects_, collected_,
                                 gives_begin_, gives_end_, computed_, returned_};
  events.insert(events.end(), waits_.begin(), waits_.end());
  events.insert(events.end(), there_.begin(), there_.end());
  for (const CUevent event : events) {
    if (event != nullptr) (void)cuda_.EventDestroy(event);
  }
}

}  // namespace rewire::moe
