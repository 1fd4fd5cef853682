#include "reconfig/moe/fsep/stream_trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe::fsep {
namespace {

const char* NameOf(Track track) {
  switch (track) {
    case Track::kTokens:
      return "tokens";
    case Track::kExperts:
      return "experts";
    case Track::kWeights:
      return "weights";
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamTrace>> StreamTrace::Create(const CudaDriver& driver,
                                                                 CUstream stream) {
  std::unique_ptr<StreamTrace> trace(new StreamTrace(driver));
  REWIRE_ASSIGN_OR_RETURN(trace->origin_, trace->Record(stream));
  return trace;
}

StreamTrace::~StreamTrace() {
  for (const Open& span : spans_) {
    driver_.EventDestroy(span.begin);
    if (span.ended) driver_.EventDestroy(span.end);
  }
  for (const CUevent event : spare_) driver_.EventDestroy(event);
  if (origin_ != nullptr) driver_.EventDestroy(origin_);
}

absl::StatusOr<CUevent> StreamTrace::Record(CUstream stream) {
  CUevent event = nullptr;
  if (spare_.empty()) {
    const CUresult created = driver_.EventCreate(&event, CU_EVENT_DEFAULT);
    if (created != CUDA_SUCCESS) {
      return absl::InternalError(driver_.Describe("cuEventCreate", created));
    }
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  const CUresult recorded = driver_.EventRecord(event, stream);
  if (recorded == CUDA_SUCCESS) return event;
  spare_.push_back(event);
  return absl::InternalError(driver_.Describe("cuEventRecord", recorded));
}

absl::Status StreamTrace::Begin(Track track, std::string name, CUstream stream) {
  REWIRE_ASSIGN_OR_RETURN(const CUevent begin, Record(stream));
  spans_.push_back({track, std::move(name), begin, nullptr, false});
  return absl::OkStatus();
}

absl::Status StreamTrace::End(Track track, CUstream stream) {
  const auto last = std::find_if(spans_.rbegin(), spans_.rend(), [&](const Open& span) {
    return span.track == track && !span.ended;
  });
  if (last == spans_.rend()) {
    return absl::FailedPreconditionError(std::string("no span of ") + NameOf(track) + " is open");
  }
  REWIRE_ASSIGN_OR_RETURN(last->end, Record(stream));
  last->ended = true;
  return absl::OkStatus();
}

absl::StatusOr<double> StreamTrace::Microseconds(CUevent event) const {
  float milliseconds = 0;
  CUresult result = WaitForEvent(driver_, event, kDevicePatience);
  if (result == CUDA_ERROR_NOT_READY) {
    return absl::DeadlineExceededError(
        DescribeWait(driver_, "end of a traced span", result, kDevicePatience));
  }
  if (result == CUDA_SUCCESS) result = driver_.EventElapsedTime(&milliseconds, origin_, event);
  if (result == CUDA_SUCCESS) return double{milliseconds} * 1000;
  return absl::InternalError(driver_.Describe("cuEventElapsedTime", result));
}

absl::StatusOr<std::vector<TraceSpan>> StreamTrace::Take() {
  std::vector<TraceSpan> spans;
  std::vector<Open> open;
  for (Open& span : spans_) {
    if (!span.ended) {
      open.push_back(std::move(span));
      continue;
    }
    REWIRE_ASSIGN_OR_RETURN(const double begin, Microseconds(span.begin));
    REWIRE_ASSIGN_OR_RETURN(const double end, Microseconds(span.end));
    spans.push_back({span.track, span.name, begin, end});
  }
  for (const Open& span : spans_) {
    if (span.ended) spare_.insert(spare_.end(), {span.begin, span.end});
  }
  spans_ = std::move(open);
  return spans;
}

double OverlapUs(std::span<const TraceSpan> spans, Track a, Track b) {
  double overlap = 0;
  for (const TraceSpan& x : spans) {
    if (x.track != a) continue;
    for (const TraceSpan& y : spans) {
      if (y.track != b) continue;
      const double begin = std::max(x.begin_us, y.begin_us);
      overlap += std::max(0.0, std::min(x.end_us, y.end_us) - begin);
    }
  }
  return overlap;
}

std::string TraceJson(std::span<const TraceSpan> spans, uint32_t rank) {
  nlohmann::json events = nlohmann::json::array();
  const auto name = [&](const char* what, int track, const std::string& text) {
    events.push_back(
        {{"ph", "M"}, {"pid", rank}, {"tid", track}, {"name", what}, {"args", {{"name", text}}}});
  };
  name("process_name", 0, "rank " + std::to_string(rank));
  for (const Track track : {Track::kTokens, Track::kExperts, Track::kWeights}) {
    name("thread_name", static_cast<int>(track), NameOf(track));
  }
  for (const TraceSpan& span : spans) {
    events.push_back({{"ph", "X"},
                      {"pid", rank},
                      {"tid", static_cast<int>(span.track)},
                      {"cat", NameOf(span.track)},
                      {"name", span.name},
                      {"ts", span.begin_us},
                      {"dur", span.end_us - span.begin_us}});
  }
  return nlohmann::json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump();
}

}  // namespace rewire::moe::fsep
