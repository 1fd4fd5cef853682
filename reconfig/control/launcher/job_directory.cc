// Makes, locks, finds and removes the folders of jobs; see job_directory.h.
#include "reconfig/control/launcher/job_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/own_file.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/status_macros.h"

namespace rewire::control {

namespace fs = std::filesystem;

namespace {

constexpr const char* kLockName = "rewire.lock";
// Another launcher that removes a killed job's folder holds the lock for less than this time.
constexpr Duration kLockPatience = milliseconds(500);

absl::Status Failed(const std::string& path, int error) {
  return absl::UnavailableError(
      absl::StrCat("open job folder: path=", path, ": ", strerror(error)));
}

// Opens a folder that only this user may change. kNotFound: the folder does not exist.
absl::StatusOr<UniqueFd> OpenOwnFolder(int at, const std::string& name, const std::string& path) {
  UniqueFd fd(openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) {
      return absl::NotFoundError(
          absl::StrCat("open job folder: path=", path, ": ", strerror(ENOENT)));
    }
    if (errno != ENOTDIR && errno != ELOOP) return Failed(path, errno);
    return absl::AlreadyExistsError(
        absl::StrCat("open job folder: path=", path, ": not a folder, or a symbolic link"));
  }
  if (const FileStatus s = CheckOwner(fd.get(), path, S_IWGRP | S_IWOTH); !s.ok()) {
    return absl::PermissionDeniedError("open job folder: path=" + s.text);
  }
  return fd;
}

std::vector<std::string> Entries(int folder) {
  std::vector<std::string> names;
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return names;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(fdopendir(fd), closedir);
  while (const dirent* entry = open == nullptr ? nullptr : readdir(open.get())) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  return names;
}

bool Same(int fd, int at, const std::string& name) {
  struct stat open {};
  struct stat named {};
  return fstat(fd, &open) == 0 && fstatat(at, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// Takes the lock of a folder; nullopt: another process holds the lock or removes the folder.
std::optional<UniqueFd> TryLock(int folder, int flags) {
  UniqueFd lock(openat(folder, kLockName, O_RDWR | O_NOFOLLOW | O_CLOEXEC | flags, 0600));
  if (!lock.valid() || flock(lock.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  if (!Same(lock.get(), folder, kLockName)) return std::nullopt;
  return lock;
}

// Removes a folder's files; the caller holds the folder's lock. A job's folder has no subfolders.
void Empty(int folder) {
  for (const std::string& name : Entries(folder)) {
    if (name != kLockName) unlinkat(folder, name.c_str(), 0);
  }
}

void RemoveFolder(int runtime, int folder, const std::string& name) {
  Empty(folder);
  unlinkat(folder, kLockName, 0);
  if (Same(folder, runtime, name)) unlinkat(runtime, name.c_str(), AT_REMOVEDIR);
}

// Removes the folders, with the job's secret, of jobs whose processes were all killed.
void RemoveDead(int runtime, const std::string& runtime_path) {
  for (const std::string& name : Entries(runtime)) {
    const absl::StatusOr<UniqueFd> folder = OpenOwnFolder(runtime, name, runtime_path);
    if (!folder.ok()) continue;
    if (const std::optional<UniqueFd> lock = TryLock(folder->get(), 0)) {
      RemoveFolder(runtime, folder->get(), name);
    }
  }
}

bool Answers(const std::string& socket) {
  UniqueFd fd;
  return ConnectUnix(socket, Now() + seconds(1), &fd).ok();
}

}  // namespace

std::string RuntimeDirectory(const std::string& given) {
  if (!given.empty()) return given;
  const char* xdg = getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && *xdg != '\0' && access(xdg, W_OK) == 0) return std::string(xdg) + "/rewire";
  return absl::StrCat("/tmp/rewire-", geteuid());
}

absl::Status CheckJobName(const std::string& name) {
  if (!name.empty() && name.find('/') == std::string::npos && name[0] != '.') {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "'", name, "': must be a file name: not empty, without '/', and not beginning with '.'"));
}

std::string SocketOfJob(const std::string& runtime, const std::string& job) {
  return absl::StrCat(runtime, "/", job, "/agent.sock");
}

absl::StatusOr<JobDirectory> JobDirectory::Make(const std::string& runtime,
                                                const std::string& name) {
  if (const absl::Status wrong = CheckJobName(name); !wrong.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--job=", std::string(wrong.message())));
  }
  JobDirectory job;
  job.runtime_path_ = runtime;
  job.name_ = name;
  const std::string path = runtime + "/" + name;
  const Time deadline = Now() + kLockPatience;
  std::error_code error;
  fs::create_directories(fs::path(runtime).parent_path(), error);
  for (;; poll(nullptr, 0, 5)) {
    job.made_runtime_ |= mkdir(runtime.c_str(), 0700) == 0;
    if (!job.made_runtime_ && errno != EEXIST) return Failed(runtime, errno);
    absl::StatusOr<UniqueFd> base = OpenOwnFolder(AT_FDCWD, runtime, runtime);
    if (!base.ok()) return base.status();
    RemoveDead(base->get(), runtime);
    if (mkdirat(base->get(), name.c_str(), 0700) != 0 && errno != EEXIST && errno != ENOENT) {
      return Failed(path, errno);
    }
    absl::StatusOr<UniqueFd> folder = OpenOwnFolder(base->get(), name, path);
    if (absl::IsNotFound(folder.status()) && Now() < deadline) continue;  // just removed
    if (!folder.ok()) return folder.status();
    const std::vector<std::string> entries = Entries(folder->get());
    if (!entries.empty() && std::find(entries.begin(), entries.end(), kLockName) == entries.end()) {
      return absl::AlreadyExistsError(absl::StrCat("make job folder: path=", path,
                                                   ": exists and does not belong to an ended job"));
    }
    std::optional<UniqueFd> lock = TryLock(folder->get(), O_CREAT);
    if (lock && Same(folder->get(), base->get(), name)) {
      // A user may have made the folder by hand with a mode that lets others read.
      if (fchmod(folder->get(), 0700) != 0) return Failed(path, errno);
      job.runtime_ = *std::move(base);
      job.folder_ = *std::move(folder);
      job.lock_ = *std::move(lock);
      job.path_ = path;
      Empty(job.folder_.get());
      return job;
    }
    if (Now() >= deadline) {
      return absl::AlreadyExistsError(
          absl::StrCat("a job named '", name, "' runs already: ", path));
    }
  }
}

void JobDirectory::Remove() {
  if (!lock_.valid()) return;
  RemoveFolder(runtime_.get(), folder_.get(), name_);
  lock_.reset();
  if (made_runtime_) rmdir(runtime_path_.c_str());
}

absl::StatusOr<std::string> FindSocket(const std::string& given, const std::string& runtime) {
  if (!given.empty()) return given;
  const absl::StatusOr<UniqueFd> base = OpenOwnFolder(AT_FDCWD, runtime, runtime);
  if (!base.ok() && !absl::IsNotFound(base.status())) return base.status();
  std::vector<std::string> live;
  for (const std::string& job : base.ok() ? Entries(base->get()) : std::vector<std::string>{}) {
    const std::string socket = SocketOfJob(runtime, job);
    if (Answers(socket)) live.push_back(socket);
  }
  std::sort(live.begin(), live.end());
  if (live.size() == 1) return live[0];
  if (live.empty()) {
    return absl::NotFoundError(
        absl::StrCat("find job: folder=", runtime,
                     ": no agent answers there (--socket or REWIRE_SOCKET names its socket)"));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "find job: several jobs run (choose one by --job or --socket): ", absl::StrJoin(live, " ")));
}

}  // namespace rewire::control
