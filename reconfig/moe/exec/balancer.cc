// What the framework's thread does; balancer_thread.cc has the balancer's own.
#include "reconfig/moe/exec/balancer.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {
namespace {

constexpr uint32_t kMaxLayer = 1 << 16;

uint32_t SlotsOf(const std::vector<Stowed>& received) {
  uint32_t slots = 0;
  for (const Stowed& s : received) slots |= 1U << s.slot;
  return slots;
}

}  // namespace

absl::Status Balancer::Expect(Stage stage, const char* call) {
  REWIRE_RETURN_IF_ERROR(CheckLost());
  if (stage_ == stage) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, " is not what comes next in a round of balancing"));
}

absl::Status Balancer::CheckInput(const RoundInput& input, const Moved* moved) const {
  const auto wrong = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("a round's input: ", why...));
  };
  if (input.tokens.size() != shape_.experts || input.weights.size() != shape_.experts) {
    return wrong(input.tokens.size(), " counts and the weights of ", input.weights.size(),
                 " experts, not ", shape_.experts);
  }
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    uint64_t bytes = 0;
    for (const WeightPart& part : input.weights[e]) bytes += part.bytes;
    if (bytes != shape_.weight_bytes) {
      return wrong("the weights of expert ", e, " are ", bytes, " bytes, not ",
                   shape_.weight_bytes);
    }
    if (input.tokens[e] >= 1U << 31) return wrong(input.tokens[e], " tokens of expert ", e);
  }
  if (input.layer > kMaxLayer) return wrong("layer ", input.layer, ", above ", kMaxLayer);
  if (round_ != 0 && input.stream != input_.stream) return wrong("another stream than before");
  if (moved == nullptr) return absl::OkStatus();
  if (shape_.grad_bytes == 0) return wrong("backward, but grad_bytes is 0");
  if (input.errors == 0) return wrong("backward without errors");
  if (moved->dynamic.size() != shape_.experts) return wrong("backward of no forward round");
  for (const Stowed& s : moved->given) {
    const uint32_t expert = s.move.expert - group_.rank * shape_.experts;
    if (expert < shape_.experts && s.move.first + s.move.tokens <= input.tokens[expert]) continue;
    return wrong("backward of another forward round: expert ", expert, " had more tokens");
  }
  return absl::OkStatus();
}

absl::Status Balancer::BeginForward(const RoundInput& input) { return Begin(input, nullptr); }

absl::Status Balancer::BeginBackward(const RoundInput& input, const Moved& moved) {
  return Begin(input, &moved);
}

absl::Status Balancer::Begin(const RoundInput& input, const Moved* moved) {
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kIdle, "Begin"));
  REWIRE_RETURN_IF_ERROR(CheckInput(input, moved));
  JudgeLastRound();
  MeasureLastRound();
  given_before_ = out_->bytes();
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(begun_, input.stream)));
  input_ = input;
  offsets_.assign(shape_.experts, 0);
  for (uint32_t e = 1; e < shape_.experts; ++e) {
    offsets_[e] = offsets_[e - 1] + input.tokens[e - 1];
  }
  before_ = moved != nullptr ? *moved : Moved{};
  moved_ = Moved{};
  gives_.clear();
  received_ = before_.received;
  for (const auto* stowed : {&before_.given, &before_.dropped}) {
    for (const Stowed& s : *stowed) gives_.push_back({s});
  }
  round_ = (round_ / 2 + 1) * 2 + (moved != nullptr ? 1 : 0);
  stage_ = Stage::kBegun;
  begin_awaited_ = false;
  planned_ = moved != nullptr;
  ++counts_.rounds;
  if (moved != nullptr) {
    dynamic_ = before_.dynamic;
    page_->Open(round_);
  } else {
    ChooseDynamic();
    page_->Post(round_, {lateness_.copies(), speeds_, input.tokens, dynamic_});
  }
  static_rows_ = 0;
  moved_.dynamic = dynamic_;
  statics_.clear();
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    if (dynamic_[e] == 0 && input.tokens[e] > 0) {
      statics_.push_back(OwnSegment(e, 0, input.tokens[e]));
      static_rows_ += input.tokens[e];
    }
  }
  return absl::OkStatus();
}

void Balancer::ChooseDynamic() {
  if (history_.size() <= input_.layer) history_.resize(input_.layer + 1);
  std::vector<uint64_t>& history = history_[input_.layer];
  if (history.empty()) history.assign(input_.tokens.begin(), input_.tokens.end());
  std::vector<uint32_t> order(shape_.experts);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return history[a] > history[b]; });
  std::fill(dynamic_.begin(), dynamic_.end(), 0);
  for (uint32_t i = 0; i < shape_.dynamic; ++i) dynamic_[order[i]] = 1;
  for (uint32_t e = 0; e < shape_.experts; ++e) history[e] += input_.tokens[e] - history[e] / 8;
}

Segment Balancer::OwnSegment(uint32_t expert, uint32_t first, uint32_t rows) const {
  Segment segment;
  segment.expert = group_.rank * shape_.experts + expert;
  segment.first = first;
  segment.rows = rows;
  const uint64_t offset = (offsets_[expert] + first) * shape_.token_bytes;
  segment.x = input_.x + offset;
  segment.errors = input_.errors == 0 ? 0 : input_.errors + offset;
  segment.out = input_.out + offset;
  return segment;
}

// The runs of an expert's rows that no helper computes. What the forward round moved is a run of
// its own.
void Balancer::AddKept(uint32_t expert, std::vector<Segment>* segments) const {
  const uint32_t number = group_.rank * shape_.experts + expert;
  std::vector<std::pair<Move, bool>> apart;  // and whether a helper has it now
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

absl::StatusOr<Work> Balancer::Close() {
  const Time deadline = Now() + options_.patience;
  while (true) {
    const uint32_t heard = page_->bell();
    {
      MutexLock lock(&mutex_);
      REWIRE_RETURN_IF_ERROR(Expect(Stage::kBegun, "Close"));
      if (Settled()) break;
    }
    if (Now() >= deadline) break;
    page_->WaitForBell(heard, deadline);
  }
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kBegun, "Close"));
  stage_ = Stage::kClosed;
  for (Give& give : gives_) {
    if (give.state == Give::kPending) give.state = Give::kKept;
  }
  (void)page_->Close(round_);
  planned_ = true;  // or too late
  Work work;
  if (absl::Status waits = AwaitReceived(&work.received); !waits.ok()) return Break(waits);
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    if (dynamic_[e] != 0) AddKept(e, &work.own);
  }
  for (const Give& give : gives_) {
    if (give.state == Give::kGiven) moved_.given.push_back(give.stowed);
  }
  return work;
}

// Lets the stream wait for what was sent, and says where it lies.
absl::Status Balancer::AwaitReceived(std::vector<Segment>* segments) {
  const uint32_t taken = page_->Taken();
  std::erase_if(received_, [&](const Stowed& s) { return (taken >> s.slot & 1) == 0; });
  moved_.received = received_;
  judge_received_ = !received_.empty();
  const CUstream stream = input_.stream;
  // Results are computed into memory from which the last round's have to be on their way.
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuStreamWaitEvent", cuda_.StreamWaitEvent(stream, returned_, 0)));
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(waits_, stream)));
  if (received_.empty()) return absl::OkStatus();
  const NodeMemory::Side own = memory_->own();
  for (const Stowed& s : received_) {
    for (const CUdeviceptr word : {own.weights_there(s.slot), own.tokens_there(s.slot)}) {
      REWIRE_RETURN_IF_ERROR(
          ToStatus(cuda_, "cuStreamWaitValue64",
                   cuda_.StreamWaitValue64(stream, word, round_, CU_STREAM_WAIT_VALUE_GEQ)));
    }
    Segment segment;
    segment.expert = s.move.expert;
    segment.first = s.move.first;
    segment.rows = s.move.tokens;
    segment.weights = own.weights(s.slot);
    segment.x = own.tokens(s.row);
    segment.errors = backward() ? own.errors(s.row) : 0;
    segment.out = memory_->results(s.row);
    segment.grad = backward() ? memory_->grads(s.slot) : 0;
    segments->push_back(segment);
  }
  counts_.received += received_.size();
  return ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(there_, stream));
}

absl::Status Balancer::GiveBack() {
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kClosed, "GiveBack"));
  stage_ = Stage::kGivenBack;
  if (received_.empty()) return absl::OkStatus();
  absl::Status sent = SendBack();
  return sent.ok() ? sent : Break(std::move(sent));
}

absl::Status Balancer::SendBack() {
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(computed_, input_.stream)));
  REWIRE_RETURN_IF_ERROR(back_->After(computed_));
  for (const Stowed& s : received_) {
    const NodeMemory::Side owner = memory_->peer(s.from);
    back_->Add(owner.back(s.back_row), memory_->results(s.row), s.move.tokens * shape_.token_bytes);
    if (backward()) {
      back_->Add(owner.back_grads(s.back_slot), memory_->grads(s.slot), shape_.grad_bytes);
    }
    REWIRE_RETURN_IF_ERROR(back_->Send());
    REWIRE_RETURN_IF_ERROR(back_->Write(owner.back_there(s.back_slot), round_));
  }
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    if (rank == group_.rank) continue;
    REWIRE_RETURN_IF_ERROR(back_->Write(memory_->peer(rank).used(group_.rank), round_));
  }
  return ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(returned_, back_->stream()));
}

absl::StatusOr<std::vector<Gradient>> Balancer::Collect() {
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kGivenBack, "Collect"));
  stage_ = Stage::kIdle;
  reported_.Set(Counts());
  judge_given_ = !moved_.given.empty();
  std::vector<Gradient> gradients;
  if (moved_.given.empty()) return gradients;
  if (absl::Status taken = TakeBack(); !taken.ok()) return Break(std::move(taken));
  if (!backward()) return gradients;
  for (const Stowed& s : moved_.given) {
    gradients.push_back({s.move.expert - group_.rank * shape_.experts, s.move.to,
                         memory_->own().back_grads(s.back_slot)});
  }
  std::sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return std::pair(a.expert, a.helper) < std::pair(b.expert, b.helper);
  });
  return gradients;
}

// Lets the stream wait for results, and copies them to where they belong.
absl::Status Balancer::TakeBack() {
  const CUstream stream = input_.stream;
  const NodeMemory::Side own = memory_->own();
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(collects_, stream)));
  for (const Stowed& s : moved_.given) {
    REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuStreamWaitValue64",
                                    cuda_.StreamWaitValue64(stream, own.back_there(s.back_slot),
                                                            round_, CU_STREAM_WAIT_VALUE_GEQ)));
  }
  REWIRE_RETURN_IF_ERROR(ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(collected_, stream)));
  for (const Stowed& s : moved_.given) {
    const uint32_t expert = s.move.expert - group_.rank * shape_.experts;
    const uint64_t row = offsets_[expert] + s.move.first;
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuMemcpyDtoDAsync",
                 cuda_.MemcpyDtoDAsync(input_.out + row * shape_.token_bytes, own.back(s.back_row),
                                       s.move.tokens * shape_.token_bytes, stream)));
  }
  return absl::OkStatus();
}

std::optional<bool> Balancer::WasLate(CUevent waits, CUevent there) const {
  float before = 0, waited = 0;
  if (cuda_.EventQuery(there) != CUDA_SUCCESS ||
      cuda_.EventElapsedTime(&before, begun_, waits) != CUDA_SUCCESS ||
      cuda_.EventElapsedTime(&waited, waits, there) != CUDA_SUCCESS) {
    return std::nullopt;
  }
  return waited * 100 > before * static_cast<float>(options_.late_percent);
}

// What a row and a KiB take; the mean of the last few rounds, so that plans do not flutter.
void Balancer::MeasureLastRound() {
  const auto measure = [&](CUevent begin, CUevent end, double units, uint32_t* speed) {
    float ms = 0;
    if (units == 0 || cuda_.EventQuery(end) != CUDA_SUCCESS ||
        cuda_.EventElapsedTime(&ms, begin, end) != CUDA_SUCCESS) {
      return;
    }
    const double now = std::clamp(ms * 1e9 / units, 1.0, 4e9);
    *speed = static_cast<uint32_t>(*speed == 0 ? now : *speed * 0.75 + now * 0.25);
  };
  if (round_ == 0) return;
  const double row_cost = backward() ? 2.0 : 1.0;
  measure(begun_, waits_, static_cast<double>(static_rows_) * row_cost, &speeds_.row);
  measure(gives_begin_, gives_end_, static_cast<double>(out_->bytes() - given_before_) / 1024,
          &speeds_.kib);
}

void Balancer::JudgeLastRound() {
  if (!judge_received_ && !judge_given_) return;
  std::optional<bool> late;
  if (judge_received_) late = WasLate(waits_, there_);
  if (judge_given_) {
    const std::optional<bool> back = WasLate(collects_, collected_);
    if (back) late = *back || late.value_or(false);
  }
  judge_received_ = judge_given_ = false;
  if (late && lateness_.Count(*late)) {
    REWIRE_WARN("moe: copies were late %u times in a row; from here on at most %u experts a round",
                options_.late_rounds, lateness_.copies());
  }
}

absl::Status Balancer::Check() {
  // A process that has just gone is not to be missed.
  if (const std::optional<uint32_t> lost = page_->FindLost()) SetLost(*lost);
  MutexLock lock(&mutex_);
  return CheckLost();
}

BalancerCounts Balancer::counts() {
  MutexLock lock(&mutex_);
  return Counts();
}

BalancerCounts Balancer::Counts() const {
  BalancerCounts counts = counts_;
  counts.copied_bytes = out_->bytes() + back_->bytes();
  counts.late_rounds = lateness_.total();
  counts.copies = status_.ok() ? lateness_.copies() : 0;
  counts.off = status_.ok() ? lateness_.off() : Off::kBroken;
  return counts;
}

}  // namespace rewire::moe
