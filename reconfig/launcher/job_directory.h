// The folder of a running job, in the runtime folder of this user: the agent's socket and store. A
// command finds the only job that runs by it. Called from the launcher's and the command's only
// thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

// Where jobs' folders are: `given`, or $XDG_RUNTIME_DIR/rewire, or /tmp/rewire-UID.
std::string RuntimeDirectory(const std::string& given);

// Holds a lock on the folder's file rewire.lock until the last process that inherited this object
// by fork(2) ends. A folder whose lock is free belongs to a job that was killed. No path is
// followed through a symbolic link, and every check is made on the opened descriptor.
class JobDirectory {
 public:
  // Makes runtime/name, readable by its owner alone, and removes the folders of killed jobs. Fails
  // when a job of this name runs, and when a folder belongs to somebody else or others may write
  // to it.
  static absl::StatusOr<JobDirectory> Make(const std::string& runtime, const std::string& name);
  JobDirectory(JobDirectory&& other) = default;
  JobDirectory& operator=(JobDirectory&&) = delete;
  ~JobDirectory() { Remove(); }

  // Removes the folder, and the runtime folder if that was made here and is empty. Two processes
  // may call this; a folder that another job has made since is left alone.
  void Remove();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string socket() const { return path_ + "/agent.sock"; }
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

// `given`, or the socket of the only job that runs; an error that lists them when there are
// several, or that names the searched folder when there is none.
absl::StatusOr<std::string> FindSocket(const std::string& given, const std::string& runtime);

}  // namespace rewire
