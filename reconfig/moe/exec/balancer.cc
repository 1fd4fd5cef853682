// The part of the framework's thread at the beginning and the end of a round. computing.cc has the
// part between, and balancer_thread.cc has the balancer's own threads.
#include "reconfig/moe/exec/balancer.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {
namespace {

constexpr uint32_t kMaxLayer = 1 << 16;

}  // namespace

absl::Status Balancer::Expect(Stage stage, const char* call) {
  REWIRE_RETURN_IF_ERROR(CheckLost());
  if (stage_ == stage) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(call, ": called out of order in a round of balancing"));
}

absl::Status Balancer::CheckInput(const RoundInput& input, const Moved* moved) const {
  const auto wrong = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("input of a round: ", why...));
  };
  if (input.tokens.size() != shape_.experts || input.weights.size() != shape_.experts) {
    return wrong("counts=", input.tokens.size(), " weights=", input.weights.size(),
                 ": must each be ", shape_.experts, " (experts)");
  }
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    uint64_t bytes = 0;
    for (const WeightPart& part : input.weights[e]) bytes += part.bytes;
    if (bytes != shape_.weight_bytes) {
      return wrong("weights of expert ", e, ": bytes=", bytes, ": must be ", shape_.weight_bytes);
    }
    if (input.tokens[e] >= 1U << 31) {
      return wrong("expert ", e, ": tokens=", input.tokens[e], ": must be below 2^31");
    }
  }
  if (input.layer > kMaxLayer) return wrong("layer=", input.layer, ": must be 0 to ", kMaxLayer);
  if (round_ != 0 && input.stream != input_.stream) {
    return wrong("stream: must be the stream of the first round");
  }
  if (moved == nullptr) return absl::OkStatus();
  if (shape_.grad_bytes == 0) return wrong("backward: grad_bytes=0: must be at least 1");
  if (input.errors == 0) return wrong("backward: errors=NULL: must be set");
  if (moved->dynamic.size() != shape_.experts) {
    return wrong("backward: the moves are not of a forward round");
  }
  if (moved->layer != input.layer) {
    return wrong("backward: layer=", input.layer, ": must be ", moved->layer,
                 ", as in the forward round");
  }
  for (const Stowed& s : moved->given) {
    const uint32_t expert = s.move.expert - group_.rank * shape_.experts;
    if (expert < shape_.experts && s.move.first + s.move.tokens <= input.tokens[expert]) continue;
    return wrong("backward: expert ", expert,
                 ": the moves are of another forward round, with more tokens");
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
  moved_.layer = input.layer;
  gives_.clear();
  received_ = before_.received;
  for (const auto* stowed : {&before_.given, &before_.dropped}) {
    for (const Stowed& s : *stowed) gives_.push_back({s});
  }
  round_ = (round_ / 2 + 1) * 2 + (moved != nullptr ? 1 : 0);
  stage_ = Stage::kBegun;
  begin_awaited_ = false;
  planned_ = moved != nullptr;
  in_order_until_ = Now() + options_.patience / kInOrder;
  ++counts_.rounds;
  if (moved != nullptr) {
    dynamic_ = before_.dynamic;
    page_->Open(round_);
  } else {
    dynamic_ = ChooseDynamic(input_.tokens, shape_.dynamic);
    if (stay_.size() <= input.layer) stay_.resize(input.layer + 1, 1);
    page_->Post(round_, {lateness_.copies(), speeds_, input.tokens, dynamic_,
                         mine_.Of(input.layer, input.version, shape_.slots),
                         input.version != 0 && stay_[input.layer] != 0});
  }
  moved_.dynamic = dynamic_;
  ChooseStatics();
  return absl::OkStatus();
}

void Balancer::ChooseStatics() {
  uint64_t rows = 0;
  for (uint32_t e = 0; e < shape_.experts; ++e) rows += dynamic_[e] == 0 ? input_.tokens[e] : 0;
  static_rows_ = 0;
  statics_.clear();
  own_.clear();
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    if (dynamic_[e] != 0 || input_.tokens[e] == 0) continue;
    const bool at_once = static_rows_ * kAtOnce < rows;
    (at_once ? statics_ : own_).push_back(OwnSegment(e, 0, input_.tokens[e]));
    if (at_once) static_rows_ += input_.tokens[e];
  }
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

absl::StatusOr<std::vector<Gradient>> Balancer::Collect() {
  MutexLock lock(&mutex_);
  REWIRE_RETURN_IF_ERROR(Expect(Stage::kComputed, "Collect"));
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

// Lets the stream wait for results, and copies the results to their rows in `out`.
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

std::optional<bool> Balancer::WasLate(std::span<const CUevent> waits,
                                      std::span<const CUevent> there) const {
  float before = 0, waited = 0;
  for (size_t i = 0; i < waits.size(); ++i) {
    float until = 0, here = 0;
    if (cuda_.EventQuery(there[i]) != CUDA_SUCCESS ||
        cuda_.EventElapsedTime(&until, begun_, waits[i]) != CUDA_SUCCESS ||
        cuda_.EventElapsedTime(&here, waits[i], there[i]) != CUDA_SUCCESS) {
      return std::nullopt;
    }
    before = std::max(before, until);
    waited += here;
  }
  return waited * 100 > before * static_cast<float>(options_.late_percent);
}

// Measures the time of a row and of a KiB, averaged over the last rounds for stable plans.
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
  measure(begun_, closed_, static_cast<double>(static_rows_) * row_cost, &speeds_.row);
  const auto given = static_cast<double>(out_->bytes() - given_before_);
  measure(gives_begin_, gives_end_, given / 1024, &speeds_.kib);
  if (given > 0 && !backward()) measure(begun_, gives_begin_, 1, &speeds_.start);
}

void Balancer::JudgeLastRound() {
  if (!judge_received_ && !judge_given_) return;
  std::optional<bool> late;
  if (judge_received_) {
    const size_t received = moved_.received.size();
    late = WasLate(std::span(waits_).first(received), std::span(there_).first(received));
  }
  if (judge_given_) {
    const std::optional<bool> back = WasLate({&collects_, 1}, {&collected_, 1});
    if (back) late = *back || late.value_or(false);
  }
  judge_received_ = judge_given_ = false;
  if (late && lateness_.Count(*late)) {
    REWIRE_WARN("moe: copies were late in %u consecutive rounds: at most %u experts per round now",
                options_.late_rounds, lateness_.copies());
  }
}

absl::Status Balancer::Check() {
  // Look now, so that a process that has just ended is found.
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
