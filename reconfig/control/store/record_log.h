// An append-only file of checksummed byte records, of which the last record counts. docs/store.md
// has the format. The file survives SIGKILL at any byte. Thread-compatible.
//
// Open() takes an exclusive lock that lasts as long as the object, and drops an unfinished record
// at the end of the file. Any other damage is an error that names file and offset.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {

class RecordLog {
 public:
  struct Options {
    uint64_t compact_bytes = 1u << 20;  // Append() rewrites a larger file with one record
  };

  // Makes a missing file; the file's directory must exist. Refuses a file or directory that another
  // user could change, and a file that another user could read.
  static absl::StatusOr<RecordLog> Open(const std::string& path, Options options);

  // The last record. If empty(), the log has no record.
  [[nodiscard]] const std::string& last() const { return last_; }
  [[nodiscard]] bool empty() const { return records_ == 0; }
  // Bytes of an unfinished record that Open() dropped; 0: none.
  [[nodiscard]] uint64_t dropped_bytes() const { return dropped_; }
  [[nodiscard]] const std::string& path() const { return path_; }

  // Ok: the record is on the disk. The disk also has room for `next` more bytes of records, if the
  // file system can allocate ahead. After an error with broken(), only Reopen() shows whether the
  // record is on the disk. After any other error the record is not on the disk.
  absl::Status Append(std::string_view record, uint64_t next = 0);
  [[nodiscard]] bool broken() const { return !broken_.ok(); }
  // After a failed Append(): reads the file again and rewrites the file with its last record. The
  // lock stays.
  absl::Status Reopen();

 private:
  RecordLog(std::string path, Options options) : path_(std::move(path)), options_(options) {}
  absl::Status Lock();
  absl::Status Recover();
  // Allocates the file's blocks up to size_ + `least` bytes, and more if the disk has them.
  absl::Status MakeRoom(uint64_t least);
  // Returns whether somebody has removed the open file.
  [[nodiscard]] bool Removed() const;
  // Replaces the file atomically by a header, the framed record in `records` (empty: none), and
  // room for `next` more bytes.
  absl::Status Rewrite(std::string_view records, uint64_t next = 0);

  std::string path_;
  Options options_;
  UniqueFd lock_;
  UniqueFd file_;
  uint64_t size_ = 0;
  uint64_t room_end_ = 0;  // blocks are allocated up to here, as far as is known
  uint64_t records_ = 0;
  uint64_t dropped_ = 0;
  std::string last_;
  absl::Status broken_;
};

}  // namespace rewire::control
