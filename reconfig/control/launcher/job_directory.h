// The folder of a running job, in this user's runtime folder: the agent's socket and store. A
// command finds the only running job by this folder. Owned by the only thread of the launcher or
// the command.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {

// Returns the folder of all jobs: `given`, or $XDG_RUNTIME_DIR/rewire, or /tmp/rewire-UID.
std::string RuntimeDirectory(const std::string& given);

// Fails when no folder of a job can have this name.
absl::Status CheckJobName(const std::string& name);
// Returns the path of the socket in the job's folder.
std::string SocketOfJob(const std::string& runtime, const std::string& job);

// Holds a lock on the folder's file rewire.lock until the last process that inherited this object
// by fork(2) ends. A folder whose lock is free belongs to a job that was killed. No path is
// followed through a symbolic link, and every check is made on the opened descriptor.
class JobDirectory {
 public:
  // Makes runtime/name, readable by its owner only, and removes the folders of killed jobs. Fails
  // when a job of this name runs, and when another user owns a folder or may write to it.
  static absl::StatusOr<JobDirectory> Make(const std::string& runtime, const std::string& name);
  JobDirectory(JobDirectory&& other) = default;
  JobDirectory& operator=(JobDirectory&&) = delete;
  ~JobDirectory() { Remove(); }

  // Removes the folder, and the runtime folder if this object made it and it is empty. Two
  // processes may call Remove(); a folder that another job has made since is not removed.
  void Remove();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string socket() const { return SocketOfJob(runtime_path_, name_); }
  [[nodiscard]] std::string store() const { return path_ + "/world"; }

 private:
  JobDirectory() = default;
  std::string runtime_path_;
  std::string name_;
  std::string path_;
  bool made_runtime_ = false;
  UniqueFd runtime_;
  UniqueFd folder_;
  UniqueFd lock_;
};

// Returns `given`, or the socket of the only running job. Fails, listing the jobs, when there are
// several, and fails, naming the searched folder, when there is none.
absl::StatusOr<std::string> FindSocket(const std::string& given, const std::string& runtime);

}  // namespace rewire::control
