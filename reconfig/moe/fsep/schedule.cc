#include "reconfig/moe/fsep/schedule.h"

#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe::fsep {
namespace {

constexpr uint32_t kGradientSets = 2;  // one set is written while the other is reduced
constexpr Duration kPoll = milliseconds(1);

absl::Status ToStatus(const CudaDriver& driver, const char* call, CUresult result) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(driver.Describe(call, result));
}

}  // namespace

std::vector<Visit> ForwardAndBackward(uint32_t layers) {
  std::vector<Visit> visits;
  for (uint32_t l = 0; l < layers; ++l) visits.push_back({l, false});
  for (uint32_t l = layers; l-- > 0;) visits.push_back({l, true});
  return visits;
}

absl::StatusOr<std::unique_ptr<Schedule>> Schedule::Create(const CudaDriver& driver,
                                                           std::unique_ptr<Exchange> exchange,
                                                           std::vector<LayerShards> layers,
                                                           uint32_t prefetch, StreamTrace* trace) {
  if (layers.empty()) return absl::InvalidArgumentError("layers=0: must be at least 1");
  if (prefetch > layers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("prefetch=", prefetch, ": must be 0 to ", layers.size(), " (layers)"));
  }
  std::unique_ptr<Schedule> schedule(
      new Schedule(driver, std::move(exchange), std::move(layers), prefetch, trace));
  REWIRE_RETURN_IF_ERROR(schedule->Allocate());
  return schedule;
}

absl::Status Schedule::Allocate() {
  const Shape& shape = exchange_->shape();
  for (uint32_t i = 0; i < prefetch_ + 1; ++i) {
    REWIRE_ASSIGN_OR_RETURN(
        weights_.emplace_back(),
        DeviceMemory::Allocate(driver_, shape.SlotChunks() * shape.WeightChunk()));
  }
  for (uint32_t i = 0; i < kGradientSets; ++i) {
    REWIRE_ASSIGN_OR_RETURN(
        gradients_.emplace_back(),
        DeviceMemory::Allocate(driver_, shape.SlotChunks() * shape.GradientChunk()));
  }
  for (CUevent* event : {&tokens_, &experts_, &restored_, &moved_}) {
    REWIRE_RETURN_IF_ERROR(MakeEvent(event));
  }
  return ToStatus(driver_, "cuStreamCreate",
                  driver_.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
}

Schedule::~Schedule() {
  if (stream_ != nullptr) {
    // Work on stream_ uses memory that the members' destructors release.
    const CUresult ended = WaitForStream(driver_, stream_, kDevicePatience);
    if (ended == CUDA_ERROR_NOT_READY) {
      REWIRE_ERROR(
          "%s; its memory is not released",
          DescribeWait(driver_, "end of the experts' schedule", ended, kDevicePatience).c_str());
      // The device may still access this memory, so it is never released.
      (void)new auto(std::move(weights_));
      (void)new auto(std::move(gradients_));
      (void)exchange_.release();
      return;
    }
    driver_.StreamDestroy(stream_);
  }
  for (const CUevent event : {tokens_, experts_, restored_, moved_}) {
    if (event != nullptr) driver_.EventDestroy(event);
  }
}

absl::Status Schedule::Place(uint32_t layer, const Placement& placement, Duration patience) {
  if (turn_ != Turn::kBegin) return Refuse("Place");
  if (exchange_->Has(layer, placement)) return absl::OkStatus();
  REWIRE_RETURN_IF_ERROR(AwaitMoved(patience));
  return exchange_->Place(layer, placement);
}

absl::Status Schedule::AwaitMoved(Duration patience) {
  const Time deadline = Now() + patience;
  while (true) {
    const CUresult passed = driver_.StreamQuery(stream_);
    if (passed != CUDA_ERROR_NOT_READY) return ToStatus(driver_, "cuStreamQuery", passed);
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("place experts: gradients of the last step: not reduced within ",
                       std::chrono::ceil<milliseconds>(patience).count(), " ms"));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

absl::Status Schedule::Begin(std::vector<Visit> visits, CUstream stream) {
  if (turn_ != Turn::kBegin) return Refuse("Begin");
  if (visits.empty()) return absl::InvalidArgumentError("begin step: visits=0: must be at least 1");
  for (const Visit& v : visits) {
    if (v.layer >= layers_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("begin step: visit of layer=", v.layer,
                                                     ": must be below layers=", layers_.size()));
    }
    REWIRE_RETURN_IF_ERROR(exchange_->CheckPlaced(v.layer));
  }
  visits_ = std::move(visits);
  visit_ = 0;
  turn_ = Turn::kBeginTokensOut;
  REWIRE_RETURN_IF_ERROR(Record(tokens_, stream));
  REWIRE_RETURN_IF_ERROR(WaitForTokensAndExperts());
  for (size_t v = 0; v < prefetch_; ++v) REWIRE_RETURN_IF_ERROR(Restore(v));
  return Record(moved_, stream_);
}

absl::Status Schedule::BeginTokens(CUstream stream) {
  const bool out = turn_ == Turn::kBeginTokensOut;
  if (!out && turn_ != Turn::kBeginTokensBack) return Refuse("BeginTokens");
  turn_ = out ? Turn::kEndTokensOut : Turn::kEndTokensBack;
  REWIRE_RETURN_IF_ERROR(Wait(stream, moved_));
  return Trace(Track::kTokens, out ? "tokens out" : "tokens back", visits_[visit_].layer, stream);
}

absl::Status Schedule::EndTokens(CUstream stream) {
  const bool out = turn_ == Turn::kEndTokensOut;
  if (!out && turn_ != Turn::kEndTokensBack) return Refuse("EndTokens");
  REWIRE_RETURN_IF_ERROR(EndTrace(Track::kTokens, stream));
  REWIRE_RETURN_IF_ERROR(Record(tokens_, stream));
  REWIRE_RETURN_IF_ERROR(WaitForTokensAndExperts());
  if (!out) {
    ++visit_;
    turn_ = visit_ < visits_.size() ? Turn::kBeginTokensOut : Turn::kFinish;
    return absl::OkStatus();
  }
  turn_ = Turn::kBeginExperts;
  REWIRE_RETURN_IF_ERROR(Restore(visit_ + prefetch_));
  REWIRE_RETURN_IF_ERROR(Record(restored_, stream_));
  REWIRE_RETURN_IF_ERROR(ReduceLast());
  return Record(moved_, stream_);
}

absl::StatusOr<SlotMemory> Schedule::BeginExperts(CUstream stream) {
  if (turn_ != Turn::kBeginExperts) return Refuse("BeginExperts");
  turn_ = Turn::kEndExperts;
  const size_t set = visit_ % weights_.size();
  SlotMemory memory{weights_[set].address(), 0};
  if (visits_[visit_].gradients) {
    memory.gradients = gradients_[reductions_ % kGradientSets].address();
  }
  // tokens_ was recorded after the last reduction that read this gradient set. With prefetch_ > 0,
  // tokens_ was also recorded after this visit's restore.
  REWIRE_RETURN_IF_ERROR(Wait(stream, tokens_));
  if (prefetch_ == 0) REWIRE_RETURN_IF_ERROR(Wait(stream, restored_));
  REWIRE_RETURN_IF_ERROR(Trace(Track::kExperts, "experts", visits_[visit_].layer, stream));
  return memory;
}

absl::Status Schedule::EndExperts(CUstream stream) {
  if (turn_ != Turn::kEndExperts) return Refuse("EndExperts");
  turn_ = Turn::kBeginTokensBack;
  unreduced_ = visits_[visit_].gradients;
  REWIRE_RETURN_IF_ERROR(EndTrace(Track::kExperts, stream));
  return Record(experts_, stream);
}

absl::Status Schedule::Finish(CUstream stream) {
  if (turn_ != Turn::kFinish) return Refuse("Finish");
  turn_ = Turn::kBegin;
  REWIRE_RETURN_IF_ERROR(ReduceLast());
  REWIRE_RETURN_IF_ERROR(Record(moved_, stream_));
  return Wait(stream, moved_);
}

absl::Status Schedule::Refuse(const char* call) const {
  constexpr const char* kDue[] = {"Begin",      "BeginTokens", "EndTokens", "BeginExperts",
                                  "EndExperts", "BeginTokens", "EndTokens", "Finish"};
  return absl::FailedPreconditionError(
      absl::StrCat(call, ": called out of order: ", kDue[static_cast<size_t>(turn_)],
                   " is due, at visit ", visit_, " of ", visits_.size()));
}

absl::Status Schedule::WaitForTokensAndExperts() {
  REWIRE_RETURN_IF_ERROR(Wait(stream_, tokens_));
  return Wait(stream_, experts_);
}

// The last experts that used this set of slots ran no later than the visit before the current one.
// stream_ has already waited for their end.
absl::Status Schedule::Restore(size_t visit) {
  if (visit >= visits_.size()) return absl::OkStatus();
  const uint32_t layer = visits_[visit].layer;
  const size_t set = visit % weights_.size();
  REWIRE_RETURN_IF_ERROR(Trace(Track::kWeights, "restore", layer, stream_));
  REWIRE_RETURN_IF_ERROR(
      exchange_->Restore(layer, layers_[layer].weights, weights_[set].address(), stream_));
  return EndTrace(Track::kWeights, stream_);
}

absl::Status Schedule::ReduceLast() {
  if (!unreduced_) return absl::OkStatus();
  unreduced_ = false;
  const uint32_t layer = visits_[visit_ - 1].layer;
  const uint32_t set = reductions_++ % kGradientSets;
  REWIRE_RETURN_IF_ERROR(Trace(Track::kWeights, "gradients", layer, stream_));
  REWIRE_RETURN_IF_ERROR(
      exchange_->Reduce(layer, gradients_[set].address(), layers_[layer].gradients, stream_));
  return EndTrace(Track::kWeights, stream_);
}

absl::Status Schedule::MakeEvent(CUevent* event) {
  return ToStatus(driver_, "cuEventCreate", driver_.EventCreate(event, CU_EVENT_DISABLE_TIMING));
}
absl::Status Schedule::Record(CUevent event, CUstream stream) {
  return ToStatus(driver_, "cuEventRecord", driver_.EventRecord(event, stream));
}
absl::Status Schedule::Wait(CUstream stream, CUevent event) {
  return ToStatus(driver_, "cuStreamWaitEvent", driver_.StreamWaitEvent(stream, event, 0));
}
absl::Status Schedule::Trace(Track track, const char* what, uint32_t layer, CUstream stream) {
  if (trace_ == nullptr) return absl::OkStatus();
  return trace_->Begin(track, absl::StrCat(what, " ", layer), stream);
}
absl::Status Schedule::EndTrace(Track track, CUstream stream) {
  return trace_ == nullptr ? absl::OkStatus() : trace_->End(track, stream);
}

}  // namespace rewire::moe::fsep
