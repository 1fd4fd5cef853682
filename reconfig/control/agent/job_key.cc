#include "reconfig/control/agent/job_key.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/own_file.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {
namespace {

absl::Status Failed(const FileStatus& s) {
  const std::string text = "job key: file=" + s.text;
  return s.error == EPERM ? absl::PermissionDeniedError(text) : absl::UnavailableError(text);
}

absl::StatusOr<Key> ReadKey(int fd, const std::string& path) {
  char bytes[kKeyBytes + 1];
  const ssize_t n = read(fd, bytes, sizeof bytes);
  if (n != ssize_t{kKeyBytes}) {
    return absl::DataLossError(
        absl::StrCat("job key: file=", path, ": bytes=", n, ": must be ", kKeyBytes));
  }
  return KeyOfBytes({bytes, kKeyBytes});
}

}  // namespace

absl::StatusOr<Key> JobKey(const std::string& path) {
  UniqueFd fd;
  const FileStatus opened = OpenOwnFile(path, O_RDONLY, &fd);
  if (opened.ok()) return ReadKey(fd.get(), path);
  if (opened.error != ENOENT) return Failed(opened);
  const Key key = RandomKey();
  // The rename makes the file atomic: the agent may be killed at any point.
  const std::string part = path + ".new";
  FileStatus s = MakeOwnFile(part, 0600, &fd);
  if (s.ok()) s = WriteWhole(fd.get(), key.view(), part);
  if (!s.ok()) return Failed(s);
  if (fsync(fd.get()) != 0 || rename(part.c_str(), path.c_str()) != 0) {
    return absl::UnavailableError(
        absl::StrCat("job key: file=", path, ": rename: ", strerror(errno)));
  }
  return key;
}

}  // namespace rewire::control
