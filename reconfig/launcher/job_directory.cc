#include "reconfig/launcher/job_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/base/socket.h"

namespace rewire {

namespace fs = std::filesystem;

namespace {

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

absl::StatusOr<JobDirectory> JobDirectory::Make(const std::string& runtime,
                                                const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name[0] == '.') {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' cannot be a job's name"));
  }
  const auto failed = [](const std::string& path) {
    return absl::UnavailableError(absl::StrCat(path, ": ", strerror(errno)));
  };
  std::error_code error;
  fs::create_directories(fs::path(runtime).parent_path(), error);
  const bool made = mkdir(runtime.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) return failed(runtime);
  struct stat st {};
  if (stat(runtime.c_str(), &st) != 0) return failed(runtime);
  if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat(runtime, " is not a folder of this user (", geteuid(), ")"));
  }
  const std::string path = runtime + "/" + name;
  if (mkdir(path.c_str(), 0700) != 0) {
    if (errno != EEXIST) return failed(path);
    if (Answers(path + "/agent.sock")) {
      return absl::AlreadyExistsError(
          absl::StrCat("a job named '", name, "' runs already: ", path));
    }
    if (!fs::is_directory(path + "/.") || !fs::exists(path + "/world.lock")) {
      return absl::AlreadyExistsError(absl::StrCat(path, " exists and is not an ended job's"));
    }
    // Left by a launcher that was killed.
    fs::remove_all(path, error);
    if (mkdir(path.c_str(), 0700) != 0) return failed(path);
  }
  return JobDirectory(path, made ? runtime : "");
}

JobDirectory::JobDirectory(JobDirectory&& other) noexcept
    : path_(std::exchange(other.path_, "")), runtime_(std::exchange(other.runtime_, "")) {}

JobDirectory::~JobDirectory() {
  if (path_.empty()) return;
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  if (!runtime_.empty()) rmdir(runtime_.c_str());
}

std::vector<std::string> LiveSockets(const std::string& runtime) {
  std::vector<std::string> out;
  std::error_code error;
  for (const fs::directory_entry& job : fs::directory_iterator(runtime, error)) {
    const std::string socket = job.path().string() + "/agent.sock";
    if (Answers(socket)) out.push_back(socket);
  }
  std::sort(out.begin(), out.end());
  return out;
}

absl::StatusOr<std::string> FindSocket(const std::string& given, const std::string& runtime) {
  if (!given.empty()) return given;
  const std::vector<std::string> live = LiveSockets(runtime);
  if (live.size() == 1) return live[0];
  if (live.empty()) {
    return absl::NotFoundError(absl::StrCat("no job runs: no agent answers in ", runtime,
                                            "; name its socket by --socket or REWIRE_SOCKET"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("several jobs run; choose one by --socket: ", absl::StrJoin(live, " ")));
}

}  // namespace rewire
