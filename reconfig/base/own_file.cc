#include "reconfig/base/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace rewire {
namespace {

FileStatus Failed(const std::string& path, const char* what) {
  const int error = errno;
  return {error, path + ": " + what + ": " + strerror(error)};
}

}  // namespace

FileStatus CheckOwner(int fd, const std::string& path, mode_t forbidden) {
  struct stat st {};
  if (fstat(fd, &st) != 0) return Failed(path, "stat");
  if (st.st_uid == geteuid() && (st.st_mode & forbidden) == 0) return {};
  char mode[8];
  snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
  const std::string found = path + ": owner=" + std::to_string(st.st_uid) + " mode=" + mode;
  if (st.st_uid != geteuid()) {
    return {EPERM, found + ": must belong to user " + std::to_string(geteuid()) +
                       " (chown, or use another path)"};
  }
  const bool reads = (forbidden & (S_IRGRP | S_IROTH)) != 0;
  return {EPERM, found + ": only its owner may " +
                     (reads ? "have access (chmod 600)" : "write to it (chmod go-w)")};
}

FileStatus CheckFolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd fd(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Failed(folder, "open");
  return CheckOwner(fd.get(), folder, S_IWGRP | S_IWOTH);
}

FileStatus OpenOwnFile(const std::string& path, int flags, UniqueFd* out) {
  // O_NONBLOCK: without this flag, open(2) of a FIFO waits for the other end.
  UniqueFd fd(open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd.valid()) return Failed(path, "open");
  struct stat st {};
  if (fstat(fd.get(), &st) != 0) return Failed(path, "stat");
  if (!S_ISREG(st.st_mode)) return {EPERM, path + ": must be a regular file"};
  FileStatus s = CheckOwner(fd.get(), path, S_IRWXG | S_IRWXO);
  if (s.ok()) *out = std::move(fd);
  return s;
}

FileStatus MakeOwnFile(const std::string& path, mode_t mode, UniqueFd* out) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return Failed(path, "unlink");
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd.valid()) return Failed(path, "open");
  *out = std::move(fd);
  return {};
}

FileStatus WriteWhole(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(path, "write");
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return {};
}

}  // namespace rewire
