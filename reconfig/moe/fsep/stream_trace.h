// Records spans of work on a device's streams, as a Chrome/Perfetto trace. Owned by the creating
// thread; the context of Create() must be current in every call and in the destructor.
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
  double begin_us = 0, end_us = 0;  // microseconds since the start of the trace
};

class StreamTrace {
 public:
  // Begins the trace at this point of the stream.
  static absl::StatusOr<std::unique_ptr<StreamTrace>> Create(const CudaDriver& driver,
                                                             CUstream stream);
  ~StreamTrace();
  StreamTrace(const StreamTrace&) = delete;
  StreamTrace& operator=(const StreamTrace&) = delete;

  // A span covers the work put on the stream between Begin() and End(). Spans of a track do not
  // nest: End() ends the track's last begun span.
  absl::Status Begin(Track track, std::string name, CUstream stream);
  absl::Status End(Track track, CUstream stream);

  // Waits until all ended spans have run, returns the spans and forgets them.
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

// Returns the microseconds in which spans of both tracks ran. Pure; thread-safe.
[[nodiscard]] double OverlapUs(std::span<const TraceSpan> spans, Track a, Track b);
// Returns the trace event specification's JSON object, a process per rank. Pure; thread-safe.
[[nodiscard]] std::string TraceJson(std::span<const TraceSpan> spans, uint32_t rank);

}  // namespace rewire::moe::fsep
