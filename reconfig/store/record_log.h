// An append-only file of checksummed byte records, of which the last one counts. docs/store.md has
// the format. It survives SIGKILL at any byte.
//
// Open() takes an exclusive lock that lasts as long as the object. A tail that was being written is
// dropped; anything else that is wrong is an error that names file and offset. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class RecordLog {
 public:
  struct Options {
    uint64_t compact_bytes = 1u << 20;  // the file is rewritten with one record when it is larger
  };

  // Makes the file when it does not exist; its directory must. Refuses a file or directory that
  // another user could change, and a file that another user could read.
  static absl::StatusOr<RecordLog> Open(const std::string& path, Options options);

  // The last record; empty() when there is none.
  [[nodiscard]] const std::string& last() const { return last_; }
  [[nodiscard]] bool empty() const { return records_ == 0; }
  // Bytes of an unfinished record that Open() dropped; 0: none.
  [[nodiscard]] uint64_t dropped_bytes() const { return dropped_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Ok: the record is on the disk. Not ok: whether it is there is known only after Reopen().
  absl::Status Append(std::string_view record);
  [[nodiscard]] bool broken() const { return !broken_.ok(); }
  // After a failed Append(): reads the file again, and makes it anew with what it holds. The lock
  // stays.
  absl::Status Reopen();

 private:
  RecordLog(std::string path, Options options) : path_(std::move(path)), options_(options) {}
  absl::Status Lock();
  absl::Status Recover();
  // Makes the file anew, with a header and, unless empty, one record; atomic.
  absl::Status Rewrite(std::string_view records);

  std::string path_;
  Options options_;
  UniqueFd lock_;
  UniqueFd file_;
  uint64_t size_ = 0;
  uint64_t records_ = 0;
  uint64_t dropped_ = 0;
  std::string last_;
  absl::Status broken_;
};

}  // namespace rewire
