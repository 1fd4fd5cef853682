// A recording: the router's counts for each layer and micro-batch, their bytes and their files.
// docs/moe.md has the format. Encoding and decoding are pure and thread-safe. The errors of files
// name the file, the byte and the cause. CountWriter and CountReader are thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/placement.h"

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

class CountWriter {
 public:
  // Creates the file. Fails if the file exists or cannot be written, or the shape is invalid.
  [[nodiscard]] static absl::StatusOr<CountWriter> Create(const std::string& path,
                                                          const RecordedShape& shape);

  // Appends one record, which is in the file when Add() returns. After a failure the file ends with
  // the previous record. Fails on counts of another shape.
  [[nodiscard]] absl::Status Add(const Recorded& recorded);

 private:
  CountWriter(std::string path, const RecordedShape& shape, UniqueFd file)
      : path_(std::move(path)), shape_(shape), file_(std::move(file)) {}
  absl::Status Append(std::string_view bytes);

  std::string path_;
  RecordedShape shape_;
  UniqueFd file_;
  uint64_t size_ = 0;
};

class CountReader {
 public:
  [[nodiscard]] static absl::StatusOr<CountReader> Open(const std::string& path);

  [[nodiscard]] const RecordedShape& shape() const { return shape_; }
  // Returns the next record; nullopt after the last. A failure ends the reading.
  [[nodiscard]] absl::StatusOr<std::optional<Recorded>> Next();

 private:
  CountReader(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  // Reads up to `bytes` bytes, or fewer at the end of the file.
  absl::StatusOr<std::string_view> Read(size_t bytes);

  std::string path_;
  UniqueFd file_;
  RecordedShape shape_;
  uint64_t offset_ = 0;  // offset of the next read
  std::string bytes_;
};

}  // namespace rewire::moe
