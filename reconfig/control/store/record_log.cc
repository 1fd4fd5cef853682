// Appends, recovers and compacts the log; see record_log.h. Thread-compatible.
#include "reconfig/control/store/record_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/own_file.h"
#include "reconfig/base/status_macros.h"

namespace rewire::control {
namespace {

constexpr char kWrongMagic[] = "this is not a store of this version (wrong magic)";

constexpr std::string_view kMagic("RWSTORE\x01\r\n\x1a\n\0\0\0\0", 16);
constexpr size_t kRecordHeader = 8;  // length, checksum of the length
constexpr size_t kRecordTrailer = 8;
constexpr uint64_t kMaxRecord = 16u << 20;
constexpr uint64_t kMaxFile = 256u << 20;
constexpr uint64_t kRoom = 64u << 10;  // on a full disk, for the changes that a job must make

absl::Status Failed(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat("store ", path, ": ", what, ": ", strerror(errno)));
}

absl::Status Corrupt(const std::string& path, uint64_t offset, const std::string& what) {
  return absl::DataLossError(
      absl::StrCat("store ", path, " is corrupt at byte ", offset, ": ", what));
}

uint32_t LengthCheck(uint32_t length) {
  ByteWriter w;
  w.Put(length);
  return XXH32(w.bytes().data(), w.bytes().size(), 0x52574c45);
}

std::string Frame(std::string_view record) {
  ByteWriter w;
  w.Put(static_cast<uint32_t>(record.size()));
  w.Put(LengthCheck(static_cast<uint32_t>(record.size())));
  w.PutRaw(record);
  w.Put(static_cast<uint64_t>(XXH3_64bits(record.data(), record.size())));
  return w.Take();
}

absl::Status ToStatus(const FileStatus& s) {
  if (s.ok()) return absl::OkStatus();
  const std::string text = "store " + s.text;
  return s.error == EPERM ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

absl::Status SyncDirectory(const std::string& path) {
  std::string directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) directory = ".";
  UniqueFd fd(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid() || fsync(fd.get()) != 0) return Failed(directory, "fsync of the directory");
  return absl::OkStatus();
}

// Refuses a file that is no store, before a lock file is made beside it. A file of another process
// always begins with the whole magic.
absl::Status CheckMagic(const std::string& path) {
  UniqueFd fd;
  const FileStatus opened = OpenOwnFile(path, O_RDWR, &fd);
  if (opened.error == ENOENT) return absl::OkStatus();
  REWIRE_RETURN_IF_ERROR(ToStatus(opened));
  std::string magic(kMagic.size(), '\0');
  const ssize_t n = pread(fd.get(), magic.data(), magic.size(), 0);
  if (n < 0) return Failed(path, "read");
  if (magic == kMagic) return absl::OkStatus();
  return Corrupt(path, 0, kWrongMagic);
}

}  // namespace

absl::StatusOr<RecordLog> RecordLog::Open(const std::string& path, Options options) {
  RecordLog log(path, options);
  REWIRE_RETURN_IF_ERROR(ToStatus(CheckFolderOf(path)));
  REWIRE_RETURN_IF_ERROR(CheckMagic(path));
  REWIRE_RETURN_IF_ERROR(log.Lock());
  const FileStatus opened = OpenOwnFile(path, O_RDWR, &log.file_);
  if (opened.error == ENOENT) {
    REWIRE_RETURN_IF_ERROR(log.Rewrite({}));
    return log;
  }
  REWIRE_RETURN_IF_ERROR(ToStatus(opened));
  REWIRE_RETURN_IF_ERROR(log.Recover());
  return log;
}

absl::Status RecordLog::Lock() {
  // The lock has a separate file, because a compaction replaces the data file.
  const std::string name = path_ + ".lock";
  REWIRE_RETURN_IF_ERROR(ToStatus(OpenOwnFile(name, O_RDWR | O_CREAT, &lock_)));
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Failed(name, "flock");
    char owner[32] = "";
    const ssize_t n = pread(lock_.get(), owner, sizeof owner - 1, 0);
    return absl::FailedPreconditionError(
        absl::StrCat("store ", path_, " is in use by process ", n > 0 ? owner : "?"));
  }
  const std::string pid = std::to_string(getpid());
  if (ftruncate(lock_.get(), 0) != 0) return Failed(name, "truncate");
  return ToStatus(WriteWhole(lock_.get(), pid, name));
}

absl::Status RecordLog::Recover() {
  struct stat st {};
  if (fstat(file_.get(), &st) != 0) return Failed(path_, "stat");
  if (static_cast<uint64_t>(st.st_size) > kMaxFile) return Corrupt(path_, kMaxFile, "too large");
  room_end_ = static_cast<uint64_t>(st.st_blocks) * 512;  // an earlier process made room
  std::string bytes(static_cast<size_t>(st.st_size), '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n =
        pread(file_.get(), bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path_, "read");
    if (n == 0) return Corrupt(path_, done, "the file became shorter while it was read");
    done += static_cast<size_t>(n);
  }
  // A rename creates the file with a complete header, so a short header is not an unfinished write.
  if (std::string_view(bytes).substr(0, kMagic.size()) != kMagic) {
    return Corrupt(path_, 0, kWrongMagic);
  }
  size_ = kMagic.size();
  while (size_ < bytes.size()) {
    const std::string_view rest = std::string_view(bytes).substr(size_);
    // Zeros up to the end are an unfinished write: the disk had the file's size, not its bytes.
    if (rest.size() < kRecordHeader || rest.find_first_not_of('\0') == std::string_view::npos)
      break;
    ByteReader header(rest);
    const auto length = header.Get<uint32_t>();
    if (header.Get<uint32_t>() != LengthCheck(length) || length > kMaxRecord) {
      return Corrupt(path_, size_, "the checksum of a record's length is wrong");
    }
    if (rest.size() < kRecordHeader + length + kRecordTrailer) break;
    const std::string_view record = rest.substr(kRecordHeader, length);
    ByteReader trailer(rest.substr(kRecordHeader + length, kRecordTrailer));
    if (trailer.Get<uint64_t>() != XXH3_64bits(record.data(), record.size())) {
      return Corrupt(path_, size_, "the checksum of a record is wrong");
    }
    last_ = std::string(record);
    ++records_;
    size_ += kRecordHeader + length + kRecordTrailer;
  }
  dropped_ = bytes.size() - size_;
  if (dropped_ == 0) return absl::OkStatus();
  if (ftruncate(file_.get(), static_cast<off_t>(size_)) != 0 || fsync(file_.get()) != 0) {
    return Failed(path_, "drop an incomplete record");
  }
  return absl::OkStatus();
}

absl::Status RecordLog::MakeRoom(uint64_t least) {
  for (const uint64_t end : {size_ + least + kRoom, size_ + least}) {
    int failed = 0;
    do {
      failed = fallocate(file_.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(end));
    } while (failed != 0 && errno == EINTR);
    if (failed != 0) continue;
    room_end_ = std::max(room_end_, end);
    return absl::OkStatus();
  }
  // Some network file systems cannot allocate ahead: there a full disk is found at the commit.
  if (errno == EOPNOTSUPP || errno == ENOSYS || size_ + least <= room_end_) return absl::OkStatus();
  return Failed(path_, "make room for a change");
}

bool RecordLog::Removed() const {
  struct stat info {};
  return fstat(file_.get(), &info) == 0 && info.st_nlink == 0;
}

absl::Status RecordLog::Append(std::string_view record, uint64_t next) {
  REWIRE_RETURN_IF_ERROR(broken_);
  if (record.size() > kMaxRecord) {
    return absl::InvalidArgumentError(absl::StrCat(
        "store ", path_, ": record: bytes=", record.size(), ": must be at most ", kMaxRecord));
  }
  const std::string framed = Frame(record);
  // A record with room is not rewritten, because the disk may have no room for another file.
  const bool has_room = next == 0 && size_ + framed.size() <= room_end_;
  // Without the folder, the open file still serves this agent.
  const bool again = Removed() && Rewrite(framed, next).ok();
  if (!again && size_ > options_.compact_bytes && !has_room) {
    broken_ = Rewrite(framed, next);
  } else if (!again) {
    if (next > 0) REWIRE_RETURN_IF_ERROR(MakeRoom(framed.size() + next));
    if (lseek(file_.get(), static_cast<off_t>(size_), SEEK_SET) < 0) {
      broken_ = Failed(path_, "seek");
    } else {
      broken_ = ToStatus(WriteWhole(file_.get(), framed, path_));
    }
    if (broken_.ok() && fdatasync(file_.get()) != 0) broken_ = Failed(path_, "fsync");
    size_ += framed.size();
  }
  REWIRE_RETURN_IF_ERROR(broken_);
  last_ = std::string(record);
  ++records_;
  return absl::OkStatus();
}

absl::Status RecordLog::Reopen() {
  // Pages whose write failed may look clean to a second fsync, so the old file proves nothing.
  REWIRE_RETURN_IF_ERROR(ToStatus(OpenOwnFile(path_, O_RDWR, &file_)));
  records_ = 0;
  last_.clear();
  REWIRE_RETURN_IF_ERROR(Recover());
  REWIRE_RETURN_IF_ERROR(Rewrite(empty() ? std::string() : Frame(last_)));
  broken_ = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status RecordLog::Rewrite(std::string_view records, uint64_t next) {
  const std::string name = path_ + ".new";
  UniqueFd fd;
  REWIRE_RETURN_IF_ERROR(ToStatus(MakeOwnFile(name, 0600, &fd)));
  const std::string bytes = std::string(kMagic) + std::string(records);
  REWIRE_RETURN_IF_ERROR(ToStatus(WriteWhole(fd.get(), bytes, name)));
  const uint64_t end = bytes.size() + next;
  if (next > 0 && fallocate(fd.get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(end)) != 0 &&
      errno != EOPNOTSUPP && errno != ENOSYS) {
    return Failed(name, "make room for a change");
  }
  if (fsync(fd.get()) != 0) return Failed(name, "fsync");
  if (rename(name.c_str(), path_.c_str()) != 0) return Failed(path_, "rename");
  REWIRE_RETURN_IF_ERROR(SyncDirectory(path_));
  file_ = std::move(fd);
  size_ = bytes.size();
  room_end_ = end;
  return absl::OkStatus();
}

}  // namespace rewire::control
