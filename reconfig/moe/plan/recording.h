// Encodes and decodes a recording: the router's counts for each layer and micro-batch. docs/moe.md
// has the format; reconfig/moe/plan/recording_file.h has the files. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/topology.h"

namespace rewire::moe {

// The shape is the same for all records of a recording.
struct RecordedShape {
  Topology topology;
  uint32_t experts = 0;
  friend bool operator==(const RecordedShape&, const RecordedShape&) = default;
};
// Requires at least one of each, and at most 2^24 pairs of device and expert; names the fault.
[[nodiscard]] absl::Status Check(const RecordedShape& shape);

struct Recorded {
  uint64_t micro_batch = 0;
  uint32_t layer = 0;
  Counts counts;  // has the shape's devices and experts
  friend bool operator==(const Recorded&, const Recorded&) = default;
};

inline constexpr size_t kShapeBytes = 32;
// `shape` has passed Check().
[[nodiscard]] std::string EncodeShape(const RecordedShape& shape);
// Fails on bytes that EncodeShape() did not make; the error says what is wrong.
[[nodiscard]] absl::StatusOr<RecordedShape> DecodeShape(std::string_view bytes);

// Returns the size of one record; all records of a recording have the same size.
[[nodiscard]] size_t RecordBytes(const RecordedShape& shape);
[[nodiscard]] std::string EncodeRecord(const Recorded& recorded);
// Fails on bytes that EncodeRecord() did not make from counts of `shape`.
[[nodiscard]] absl::StatusOr<Recorded> DecodeRecord(std::string_view bytes,
                                                    const RecordedShape& shape);

}  // namespace rewire::moe
