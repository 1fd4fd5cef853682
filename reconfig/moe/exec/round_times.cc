#include "reconfig/moe/exec/round_times.h"

#include <algorithm>

#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/exec/copy_queue.h"

namespace rewire::moe {

namespace {

// A round without copies measures no copy. A plan that finds copies too slow would never be revised
// on its own evidence, so each such round forgets this fraction of the copies' speeds.
constexpr uint32_t kForgotten = 128;

}  // namespace

bool Lateness::Count(bool late) {
  late_ = late ? late_ + 1 : 0;
  total_ += late ? 1 : 0;
  if (late_ < in_a_row_) return false;
  late_ = 0;
  copies_ /= 2;
  if (copies_ == 0 && off_ == Off::kNo) off_ = Off::kLate;
  return true;
}

void Lateness::TurnOff() {
  copies_ = 0;
  if (off_ == Off::kNo) off_ = Off::kCopies;
}

absl::StatusOr<std::unique_ptr<RoundTimes>> RoundTimes::Create(const CudaDriver& cuda,
                                                               uint32_t slots,
                                                               uint32_t late_percent) {
  std::unique_ptr<RoundTimes> times(new RoundTimes(cuda, slots, late_percent));
  for (CUevent* event : times->Events()) {
    REWIRE_RETURN_IF_ERROR(ToStatus(cuda, "cuEventCreate", cuda.EventCreate(event, 0)));
  }
  return times;
}

RoundTimes::~RoundTimes() {
  for (const CUevent* event : Events()) {
    if (*event != nullptr) (void)cuda_.EventDestroy(*event);
  }
}

std::vector<CUevent*> RoundTimes::Events() {
  std::vector<CUevent*> events = {&begun_,     &closed_,      &collects_,
                                  &collected_, &gives_begin_, &gives_end_};
  for (std::vector<CUevent>* some : {&waits_, &there_}) {
    for (CUevent& event : *some) events.push_back(&event);
  }
  return events;
}

absl::Status RoundTimes::Record(CUevent event, CUstream stream) const {
  return ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(event, stream));
}

std::optional<bool> RoundTimes::WasLate(std::span<const CUevent> waits,
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
  return waited * 100 > before * static_cast<float>(late_percent_);
}

void RoundTimes::Judge(Lateness* lateness) {
  if (judge_received_ == 0 && !judge_given_) return;
  std::optional<bool> late;
  if (judge_received_ != 0) {
    late =
        WasLate(std::span(waits_).first(judge_received_), std::span(there_).first(judge_received_));
  }
  if (judge_given_) {
    const std::optional<bool> back = WasLate({&collects_, 1}, {&collected_, 1});
    if (back) late = *back || late.value_or(false);
  }
  judge_received_ = 0;
  judge_given_ = false;
  if (late && lateness->Count(*late)) {
    REWIRE_WARN("moe: copies were late in %u consecutive rounds: at most %u experts per round now",
                lateness->in_a_row(), lateness->copies());
  }
}

void RoundTimes::Measure(bool backward, uint64_t static_rows, uint64_t given) {
  const auto measure = [&](CUevent begin, CUevent end, double units, uint32_t* speed) {
    float ms = 0;
    if (units == 0 || cuda_.EventQuery(end) != CUDA_SUCCESS ||
        cuda_.EventElapsedTime(&ms, begin, end) != CUDA_SUCCESS) {
      return;
    }
    const double now = std::clamp(ms * 1e9 / units, 1.0, 4e9);
    *speed = static_cast<uint32_t>(*speed == 0 ? now : *speed * 0.75 + now * 0.25);
  };
  const double row_cost = backward ? 2.0 : 1.0;
  measure(begun_, closed_, static_cast<double>(static_rows) * row_cost, &speeds_.row);
  if (given == 0) {
    speeds_.kib -= speeds_.kib / kForgotten;
    speeds_.start -= speeds_.start / kForgotten;
    return;
  }
  measure(gives_begin_, gives_end_, static_cast<double>(given) / 1024, &speeds_.kib);
  if (!backward) measure(begun_, gives_begin_, 1, &speeds_.start);
}

bool RoundTimes::PassedWaits() const {
  return cuda_.EventQuery(collected_) != CUDA_ERROR_NOT_READY &&
         std::none_of(there_.begin(), there_.end(), [this](CUevent there) {
           return cuda_.EventQuery(there) == CUDA_ERROR_NOT_READY;
         });
}

}  // namespace rewire::moe
