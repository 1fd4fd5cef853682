// Reads and writes files of recorded counts. docs/moe.md has the format. Errors name the file, the
// byte and the cause. Each object is thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/moe/plan/recording.h"

namespace rewire::moe {

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
