// What ran when on a device's streams, by events around it, as a Chrome/Perfetto trace. An object
// belongs to one thread and one context, which is current in every call and at the end.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/cuda_driver.h"

namespace rewire::moe::fsep {

enum class Track : uint8_t { kTokens, kExperts, kWeights };

struct TraceSpan {
  Track track = Track::kTokens;
  std::string name;
  double begin_us = 0, end_us = 0;  // since the trace's beginning
};

class StreamTrace {
 public:
  // Begins, in the order of the stream.
  static absl::StatusOr<std::unique_ptr<StreamTrace>> Create(const CudaDriver& driver,
                                                             CUstream stream);
  ~StreamTrace();
  StreamTrace(const StreamTrace&) = delete;
  StreamTrace& operator=(const StreamTrace&) = delete;

  // A span is from what is on the stream at Begin() to what is at End(). Spans of a track do not
  // nest: End() ends the last one that was begun there.
  absl::Status Begin(Track track, std::string name, CUstream stream);
  absl::Status End(Track track, CUstream stream);

  // Waits until all that was ended has run, and forgets it.
  absl::StatusOr<std::vector<TraceSpan>> Take();

 private:
  struct Open {
    Track track = Track::kTokens;
    std::string name;
    CUevent begin = nullptr, end = nullptr;
    bool ended = false;
  };

  explicit StreamTrace(const CudaDriver& driver) : driver_(driver) {}
  absl::StatusOr<CUevent> Record(CUstream stream);
  absl::StatusOr<double> Microseconds(CUevent event) const;

  const CudaDriver& driver_;
  CUevent origin_ = nullptr;
  std::vector<Open> spans_;
  std::vector<CUevent> spare_;
};

// How long spans of the two tracks ran at the same time. Pure.
[[nodiscard]] double OverlapUs(std::span<const TraceSpan> spans, Track a, Track b);
// The JSON object format of the trace event specification, a process per rank. Pure.
[[nodiscard]] std::string TraceJson(std::span<const TraceSpan> spans, uint32_t rank);

}  // namespace rewire::moe::fsep
