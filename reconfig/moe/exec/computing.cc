// The balancer's part on the framework's thread between Begin..() and Collect(): chooses which rows
// the device computes and when.
#include <algorithm>

#include "reconfig/base/status_macros.h"
#include "reconfig/moe/exec/balancer.h"

namespace rewire::moe {
namespace {

uint32_t SlotsOf(const std::vector<Stowed>& received) {
  uint32_t slots = 0;
  for (const Stowed& s : received) slots |= 1U << s.slot;
  return slots;
}

}  // namespace

// Adds the runs of an expert's rows that no helper computes. In a backward round, rows that the
// forward round moved are a separate run.
void Balancer::AddKept(uint32_t expert, std::vector<Segment>* segments) const {
  const uint32_t number = group_.rank * shape_.experts + expert;
  std::vector<std::pair<Move, bool>> apart;  // with: whether a helper computes the rows now
  for (const Give& give : gives_) {
    if (give.stowed.move.expert == number) {
      apart.emplace_back(give.stowed.move, give.state == Give::kGiven);
    }
  }
  std::sort(apart.begin(), apart.end(),
            [](const auto& a, const auto& b) { return a.first.first < b.first.first; });
  uint32_t next = 0;
  const auto keep_until = [&](uint32_t end) {
    if (end > next) segments->push_back(OwnSegment(expert, next, end - next));
  };
  for (const auto& [move, given] : apart) {
    if (!given && !backward()) continue;
    keep_until(move.first);
    next = move.first + move.tokens;
    if (given) continue;
    segments->push_back(OwnSegment(expert, move.first, move.tokens));
    segments->back().recompute = true;
  }
  keep_until(input_.tokens[expert]);
}

bool Balancer::Settled() const {
  const uint32_t expected = SlotsOf(received_);
  return planned_ && (page_->Settled() & expected) == expected &&
         std::none_of(gives_.begin(), gives_.end(),
                      [](const Give& give) { return give.state == Give::kPending; });
}

// Records the end of the static segments, to measure their time, before the host's wait.
absl::Status Balancer::EndStatics() {
  MutexLock lock(&mutex_);
  if (stage_ != Stage::kBegun || !CheckLost().ok()) return absl::OkStatus();
  absl::Status recorded =
      ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(closed_, input_.stream));
  return recorded.ok() ? recorded : Break(std::move(recorded));
}

// Waits on the host, up to `patience`, until all processes have taken or declined the slots.
void Balancer::AwaitSettlement() {
  const Time deadline = Now() + options_.patience;
  while (true) {
    const uint32_t seen = page_->wakeups();
    {
      MutexLock lock(&mutex_);
      if (stage_ != Stage::kBegun || !CheckLost().ok() || Settled()) return;
    }
    if (Now() >= deadline) return;
    page_->WaitForWakeup(seen, deadline);
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
  for (Give& give : gives_) {
    if (give.state == Give::kPending) give.state = Give::kKept;
  }
  const uint32_t taken = page_->Close(round_);
  planned_ = true;  // a later plan is ignored
  std::erase_if(received_, [&](const Stowed& s) { return (taken >> s.slot & 1) == 0; });
  moved_.received = received_;
  for (const Stowed& s : received_) mine_.Put(s.slot, WeightsOf(s), round_);
  for (const Give& give : gives_) {
    if (give.state == Give::kGiven) moved_.given.push_back(give.stowed);
  }
  counts_.received += received_.size();
  judge_received_ = !received_.empty();
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    if (dynamic_[e] != 0) AddKept(e, &own_);
  }
  if (backward()) JudgeStay();
  ChooseTurns();
  // This round's results overwrite the last results, which must have been sent.
  return ToStatus(cuda_, "cuStreamWaitEvent", cuda_.StreamWaitEvent(input_.stream, returned_, 0));
}

void Balancer::JudgeStay() {
  const std::vector<Stowed>& given = moved_.given;
  if (given.empty()) return;
  const auto held =
      std::count_if(given.begin(), given.end(), [](const Stowed& s) { return s.held; });
  stay_[input_.layer] = static_cast<size_t>(held) * 2 > given.size() ? 1 : 0;
}

void Balancer::ChooseTurns() {
  std::vector<uint32_t> own_rows;
  for (const Segment& s : own_) own_rows.push_back(s.rows);
  const std::vector<Stowed>& planned = backward() ? before_.planned : moved_.planned;
  const std::vector<uint64_t> due =
      Arrivals(planned, shape_, nodes_speeds_, backward(), before_.stay);
  std::vector<Arrival> arrivals;
  for (uint32_t i = 0; i < received_.size(); ++i) {
    Arrival arrival{UINT64_MAX, received_[i].move.tokens, i};  // if nothing has been measured yet
    const auto plan = std::find(planned.begin(), planned.end(), received_[i]);
    if (nodes_speeds_.kib != 0 && plan != planned.end()) arrival.at = due[plan - planned.begin()];
    arrivals.push_back(arrival);
  }
  const uint64_t row = (backward() ? 2 : 1) * uint64_t{nodes_speeds_.row};
  turns_ = TakeTurns(static_rows_, own_rows, std::move(arrivals), row);
  turn_ = 0;
}

absl::StatusOr<std::vector<Segment>> Balancer::TakeTurn() {
  if (turn_ > 0 && turns_[turn_ - 1].received) {
    REWIRE_RETURN_IF_ERROR(SendBack(received_[turns_[turn_ - 1].index]));
  }
  std::vector<Segment> segments;
  if (turn_ == turns_.size()) {
    stage_ = Stage::kComputed;
    REWIRE_RETURN_IF_ERROR(EndReceiving());
  } else if (turns_[turn_].received) {
    REWIRE_ASSIGN_OR_RETURN(const Segment received, Receive(turns_[turn_++].index));
    segments.push_back(received);
  } else {
    while (turn_ < turns_.size() && !turns_[turn_].received) {
      segments.push_back(own_[turns_[turn_++].index]);
    }
  }
  return segments;
}

// Lets the stream wait for the received data, and returns the segment.
absl::StatusOr<Segment> Balancer::Receive(uint32_t index) {
  const Stowed& s = received_[index];
  const CUstream stream = input_.stream;
  const NodeMemory::Side own = memory_->own();
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(waits_[index], stream)));
  for (const CUdeviceptr word : {own.weights_there(s.slot), own.tokens_there(s.slot)}) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuStreamWaitValue64",
                 cuda_.StreamWaitValue64(stream, word, round_, CU_STREAM_WAIT_VALUE_GEQ)));
  }
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(there_[index], stream)));
  Segment segment;
  segment.expert = s.move.expert;
  segment.first = s.move.first;
  segment.rows = s.move.tokens;
  segment.weights = own.weights(s.slot);
  segment.x = own.tokens(s.row);
  segment.errors = backward() ? own.errors(s.row) : 0;
  segment.out = memory_->results(s.row);
  segment.grad = backward() ? memory_->grads(s.slot) : 0;
  return segment;
}

absl::Status Balancer::SendBack(const Stowed& s) {
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(computed_, input_.stream)));
  REWIRE_RETURN_IF_ERROR(back_->After(computed_));
  const NodeMemory::Side owner = memory_->peer(s.from);
  back_->Add(owner.back(s.back_row), memory_->results(s.row), s.move.tokens * shape_.token_bytes);
  if (backward()) {
    back_->Add(owner.back_grads(s.back_slot), memory_->grads(s.slot), shape_.grad_bytes);
  }
  REWIRE_RETURN_IF_ERROR(back_->Send());
  return back_->Write(owner.back_there(s.back_slot), round_);
}

// Tells the owners that the data of this round is not needed any more.
absl::Status Balancer::EndReceiving() {
  if (received_.empty()) return absl::OkStatus();
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank) continue;
    REWIRE_RETURN_IF_ERROR(back_->Write(memory_->peer(rank).used(group_.rank), round_));
  }
  return ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(returned_, back_->stream()));
}

}  // namespace rewire::moe
