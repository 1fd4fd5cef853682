#include "reconfig/agent/job_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {
namespace {

std::string ModeText(mode_t mode) {
  char text[8];
  snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode & 07777));
  return text;
}

absl::StatusOr<Key> ReadKey(int fd, const std::string& path) {
  struct stat st {};
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("read job key: file=", path, ": must be a regular file"));
  }
  if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "read job key: file=", path, ": owner=", st.st_uid, " mode=", ModeText(st.st_mode),
        ": only its owner ", geteuid(), " may have access (chmod 600)"));
  }
  char bytes[kKeyBytes + 1];
  if (read(fd, bytes, sizeof bytes) != ssize_t{kKeyBytes}) {
    return absl::DataLossError(
        absl::StrCat("read job key: file=", path, ": bytes=", st.st_size, ": must be ", kKeyBytes));
  }
  return KeyOfBytes({bytes, kKeyBytes});
}

}  // namespace

absl::StatusOr<Key> JobKey(const std::string& path) {
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd.valid()) return ReadKey(fd.get(), path);
  const auto failed = [](const std::string& file, const char* what) {
    return absl::UnavailableError(
        absl::StrCat("job key: file=", file, ": ", what, ": ", strerror(errno)));
  };
  if (errno != ENOENT) return failed(path, "open");
  const Key key = RandomKey();
  // Whole or not at all: the agent may be killed here.
  const std::string part = path + ".new";
  if (unlink(part.c_str()) != 0 && errno != ENOENT) return failed(part, "unlink");
  const UniqueFd out(open(part.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!out.valid()) return failed(part, "open");
  if (write(out.get(), key.bytes.data(), kKeyBytes) != ssize_t{kKeyBytes}) {
    return failed(part, "write");
  }
  if (fsync(out.get()) != 0 || rename(part.c_str(), path.c_str()) != 0) {
    return failed(path, "rename");
  }
  return key;
}

}  // namespace rewire
