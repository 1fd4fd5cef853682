#include "reconfig/moe/exec/balancer.h"

#include <pthread.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {
namespace {

// The first 1/kInOrder of `patience` is reserved for helpers whose copies are planned first.
constexpr int kInOrder = 4;
constexpr Duration kWakeup = seconds(1);  // the longest wait of the thread without a wake-up
// Limit of the wait in Leave() for copies in flight and for the other processes to finish.
constexpr Duration kLeaving = seconds(10);
constexpr Duration kPoll = milliseconds(1);

absl::Status CheckOptions(const BalancerOptions& options) {
  if (options.late_rounds > 0) return absl::OkStatus();
  return absl::InvalidArgumentError("late_rounds=0: must be at least 1");
}

}  // namespace

CountsPart::~CountsPart() {
  BalancerCounts gone = last_;
  gone.copies = 0;
  Set(gone);
}

void CountsPart::Set(const BalancerCounts& now) {
  Count(Counter::kMoeRounds, now.rounds - last_.rounds);
  Count(Counter::kMoeMoves, now.given - last_.given);
  Count(Counter::kMoeCopiedBytes, now.copied_bytes - last_.copied_bytes);
  Count(Counter::kMoeLateRounds, now.late_rounds - last_.late_rounds);
  Count(Counter::kMoeBudget, uint64_t{now.copies} - last_.copies);
  if (now.off != last_.off) {
    if (now.off == Off::kLate) Count(Counter::kMoeOffLate);
    if (now.off == Off::kCopies) Count(Counter::kMoeOffCopies);
    if (now.off == Off::kBroken) Count(Counter::kMoeOffBroken);
  }
  last_ = now;
}

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
  const Time deadline = Now() + options.meeting;
  REWIRE_ASSIGN_OR_RETURN(std::unique_ptr<JoinedNode> node,
                          JoinedNode::Allocate(cuda, group, shape));
  std::unique_ptr<Balancer> balancer(new Balancer(std::move(node), options, context));
  REWIRE_RETURN_IF_ERROR(balancer->Prepare(deadline));
  REWIRE_INFO("moe: %s: rank %u of %u moves up to %u experts per round, with %llu bytes of memory",
              group.name.c_str(), group.rank, group.ranks, balancer->counts().copies,
              static_cast<unsigned long long>(balancer->node_->memory().bytes()));
  return balancer;
}

Balancer::Balancer(std::unique_ptr<JoinedNode> node, const BalancerOptions& options,
                   CUcontext context)
    : options_(options),
      context_(context),
      node_(std::move(node)),
      rows_(node_->shape(), node_->group().rank),
      postings_(node_->group().ranks),
      lateness_(options.copies != 0 ? options.copies : node_->shape().slots * node_->group().ranks,
                options.late_rounds) {
  for (Posting& posting : postings_) {
    posting.tokens.resize(node_->shape().experts);
    posting.dynamic.resize(node_->shape().experts);
    posting.slots.resize(node_->shape().slots);
  }
}

absl::Status Balancer::Prepare(Time deadline) {
  REWIRE_ASSIGN_OR_RETURN(
      times_, RoundTimes::Create(node_->cuda(), node_->shape().slots, options_.late_percent));
  REWIRE_ASSIGN_OR_RETURN(giving_, Giving::Create(node_.get(), times_.get()));
  REWIRE_ASSIGN_OR_RETURN(receiving_, Receiving::Create(node_.get(), times_.get()));
  REWIRE_ASSIGN_OR_RETURN(watch_, LossWatch::Create(node_.get()));
  CopyQueue *out = nullptr, *back = nullptr;
  {
    MutexLock lock(&mutex_);
    out = giving_->mutable_out();
    back = receiving_->mutable_back();
  }
  REWIRE_RETURN_IF_ERROR(node_->Join(out, back, deadline));
  thread_ = std::thread([this] { Run(); });
  watch_->Start(context_);
  MutexLock lock(&mutex_);
  reported_.Set(Counts());
  return absl::OkStatus();
}

Balancer::~Balancer() {
  if (thread_.joinable()) Leave();
}

void Balancer::Leave() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  node_->page().WakeOwn();
  thread_.join();
  // Own copies, and the copies that the caller's stream waits for.
  const auto finished = [this] {
    const CudaDriver& cuda = node_->cuda();
    MutexLock lock(&mutex_);
    return cuda.StreamQuery(giving_->out().stream()) != CUDA_ERROR_NOT_READY &&
           cuda.StreamQuery(receiving_->back().stream()) != CUDA_ERROR_NOT_READY &&
           times_->PassedWaits();
  };
  const Time deadline = Now() + kLeaving;
  while (!finished() && Now() < deadline) std::this_thread::sleep_for(kPoll);
  if (Check().ok()) node_->Leave(deadline);
  watch_->Stop();
}

absl::Status Balancer::Expect(Stage stage, const char* call) {
  REWIRE_RETURN_IF_ERROR(CheckLost());
  if (stage_ == stage) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, ": called out of order in a round of balancing"));
}

absl::Status Balancer::BeginForward(const RoundInput& input) { return Begin(input, nullptr); }

absl::Status Balancer::BeginBackward(const RoundInput& input, const Moved& moved) {
  return Begin(input, &moved);
}

absl::Status Balancer::Begin(const RoundInput& input, const Moved* moved) {
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kIdle, "Begin"));
  REWIRE_RETURN_IF_ERROR(moe::Check(input, moved, round_, node_->shape(), node_->group().rank));
  times_->Judge(&lateness_);
  const uint64_t given = giving_->TakeBytes();
  if (round_.key != 0) times_->Measure(round_.backward(), rows_.static_rows(), given);
  REWIRE_RETURN_IF_ERROR(times_->BeginRound(input.stream));
  before_ = moved != nullptr ? *moved : Moved{};
  moved_ = Moved{};
  moved_.layer = input.layer;
  round_.Begin(input, moved != nullptr);
  giving_->Begin();
  for (const auto* placed : {&before_.given, &before_.dropped}) {
    for (const PlacedMove& s : *placed) giving_->Add(s);
  }
  receiving_->Begin(before_.received);
  stage_ = Stage::kBegun;
  planned_ = moved != nullptr;
  in_order_until_ = Now() + options_.patience / kInOrder;
  if (moved != nullptr) {
    moved_.dynamic = before_.dynamic;
    node_->page().Open(round_.key);
  } else {
    moved_.dynamic = ChooseDynamic(input.tokens, node_->shape().dynamic);
    const bool stayed = giving_->Stayed(input.layer);
    node_->page().Post(
        round_.key, {lateness_.copies(), times_->speeds(), input.tokens, moved_.dynamic,
                     receiving_->Slots(input.layer, input.version), input.version != 0 && stayed});
  }
  rows_.Begin(round_, moved_.dynamic);
  return absl::OkStatus();
}

// Records the end of the static segments, to measure their time, before the host's wait.
absl::Status Balancer::EndStatics() {
  MutexLock lock(&mutex_);
  if (stage_ != Stage::kBegun || !CheckLost().ok()) return absl::OkStatus();
  absl::Status recorded = times_->EndStatics(round_.input.stream);
  return recorded.ok() ? recorded : Break(std::move(recorded));
}

// Waits on the host, up to `patience`, until all processes have taken or declined the slots.
void Balancer::AwaitSettlement() {
  const Time deadline = Now() + options_.patience;
  while (true) {
    const uint32_t seen = node_->page().wakeups();
    {
      MutexLock lock(&mutex_);
      if (stage_ != Stage::kBegun || !CheckLost().ok()) return;
      if (planned_ && receiving_->Settled() && !giving_->pending()) return;
    }
    if (Now() >= deadline) return;
    node_->page().WaitForWakeup(seen, deadline);
  }
}

absl::StatusOr<std::vector<Segment>> Balancer::Next() {
  REWIRE_RETURN_IF_ERROR(EndStatics());
  AwaitSettlement();
  MutexLock lock(&mutex_);
  if (stage_ != Stage::kBegun) REWIRE_RETURN_IF_ERROR(Expect(Stage::kComputing, "Next"));
  REWIRE_RETURN_IF_ERROR(CheckLost());
  if (stage_ == Stage::kBegun) {
    if (absl::Status closed = Close(); !closed.ok()) return Break(std::move(closed));
  }
  absl::StatusOr<std::vector<Segment>> segments = TakeTurn();
  if (!segments.ok()) return Break(segments.status());
  return segments;
}

// Ends the agreement of the round: the division of the rows is final from here on.
absl::Status Balancer::Close() {
  stage_ = Stage::kComputing;
  planned_ = true;  // a later plan is ignored
  receiving_->Close(round_);
  giving_->Close(&moved_);
  moved_.received = receiving_->received();
  times_->ExpectReceived(moved_.received.size());
  rows_.Close(round_, giving_->gives());
  if (round_.backward()) giving_->JudgeStay(round_.input.layer, moved_.given);
  rows_.Order(round_, moved_.received, round_.backward() ? before_.planned : moved_.planned,
              before_.stay, nodes_speeds_);
  return receiving_->AwaitReturned(round_.input.stream);
}

absl::StatusOr<std::vector<Segment>> Balancer::TakeTurn() {
  if (const std::optional<uint32_t> computed = rows_.LastReceived()) {
    REWIRE_RETURN_IF_ERROR(receiving_->SendBack(round_, *computed));
  }
  std::vector<Segment> segments;
  if (rows_.done()) {
    stage_ = Stage::kComputed;
    REWIRE_RETURN_IF_ERROR(receiving_->End(round_));
  } else if (const std::optional<uint32_t> index = rows_.TakeReceived()) {
    REWIRE_ASSIGN_OR_RETURN(const Segment received, receiving_->Receive(round_, *index));
    segments.push_back(received);
  } else {
    segments = rows_.TakeOwn();
  }
  return segments;
}

absl::StatusOr<std::vector<Gradient>> Balancer::Collect() {
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kComputed, "Collect"));
  stage_ = Stage::kIdle;
  reported_.Set(Counts());
  if (moved_.given.empty()) return std::vector<Gradient>();
  times_->ExpectResults();
  if (absl::Status taken = giving_->TakeBack(round_, moved_.given); !taken.ok()) {
    return Break(std::move(taken));
  }
  if (!round_.backward()) return std::vector<Gradient>();
  return giving_->Gradients(moved_.given);
}

void Balancer::Run() {
  ::pthread_setname_np(::pthread_self(), "rewire-moe");
  (void)node_->cuda().CtxSetCurrent(context_);
  while (true) {
    const uint32_t seen = node_->page().wakeups();
    Time deadline;
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (!planned_) PlanRound();
      const Time now = Now();
      GiveWhatIsDue(now);
      deadline = now < in_order_until_ ? in_order_until_ : now + kWakeup;
    }
    node_->page().WaitForWakeup(seen, deadline);
  }
}

void Balancer::PlanRound() {
  const uint64_t round = round_.key;
  if (!CheckLost().ok() || !node_->page().Read(round, &postings_)) return;
  mutex_.Unlock();  // Next() must not block on planning
  NodePlan plan = PlanNode(postings_, node_->shape());
  mutex_.Lock();
  // A process that closed before its plan was made keeps all its rows and receives none.
  if (round_.key != round || stage_ != Stage::kBegun) return;
  in_order_until_ = Now() + options_.patience / kInOrder;
  nodes_speeds_ = plan.speeds;
  moved_.stay = plan.stay;
  for (const PlacedMove& placed : plan.moves) {
    if (placed.move.to == node_->group().rank) receiving_->Add(placed);
    if (placed.from == node_->group().rank) giving_->Add(placed);
  }
  moved_.planned = std::move(plan.moves);
  planned_ = true;
  node_->page().Open(round);
}

void Balancer::GiveWhatIsDue(Time now) {
  if (!planned_ || stage_ != Stage::kBegun || !CheckLost().ok()) return;
  absl::Status given = giving_->GiveWhatIsDue(round_, now < in_order_until_, &lateness_);
  if (!given.ok()) (void)Break(std::move(given));
}

absl::Status Balancer::Break(absl::Status status) {
  if (!status_.ok()) return status_;
  status_ = std::move(status);
  reported_.Set(Counts());
  REWIRE_ERROR("moe: %s", std::string(status_.message()).c_str());
  node_->page().Fail();
  return status_;
}

absl::Status Balancer::CheckLost() {
  const std::optional<uint32_t> lost = watch_->lost();
  if (!lost || !status_.ok()) return status_;
  return Break(absl::UnavailableError(
      absl::StrCat("rank ", *lost, " of ", node_->group().name,
                   " is lost: results since the last check must not be used")));
}

absl::Status Balancer::Check() {
  watch_->LookNow();
  MutexLock lock(&mutex_);
  return CheckLost();
}

BalancerCounts Balancer::counts() {
  MutexLock lock(&mutex_);
  return Counts();
}

BalancerCounts Balancer::Counts() const {
  BalancerCounts counts;
  counts.rounds = round_.key / 2;
  counts.given = giving_->given();
  counts.received = receiving_->total();
  counts.given_rows = giving_->given_rows();
  counts.copied_bytes = giving_->out().bytes() + receiving_->back().bytes();
  counts.late_rounds = lateness_.total();
  counts.copies = status_.ok() ? lateness_.copies() : 0;
  counts.off = status_.ok() ? lateness_.off() : Off::kBroken;
  return counts;
}

}  // namespace rewire::moe
