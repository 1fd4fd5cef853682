// Files of recorded counts. docs/moe.md has the format. Errors name the file, the byte and the
// cause. Each object is for one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/moe/recording.h"

namespace rewire::moe {

class CountWriter {
 public:
  // Makes the file. Fails where there is one, on a shape that fails Check(), and where the file
  // cannot be written.
  [[nodiscard]] static absl::StatusOr<CountWriter> Create(const std::string& path,
                                                          const RecordedShape& shape);

  // Appends one record; it is in the file when this returns. On a failure the file ends with the
  // record before. Fails on counts of another shape.
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
  // The next record; nothing after the last. After a failure there is no other.
  [[nodiscard]] absl::StatusOr<std::optional<Recorded>> Next();

 private:
  CountReader(std::string path, UniqueFd file) : path_(std::move(path)), file_(std::move(file)) {}
  // As many bytes as there are, up to so many.
  absl::StatusOr<std::string_view> Read(size_t bytes);

  std::string path_;
  UniqueFd file_;
  RecordedShape shape_;
  uint64_t offset_ = 0;  // of what is read next
  std::string bytes_;
};

}  // namespace rewire::moe
