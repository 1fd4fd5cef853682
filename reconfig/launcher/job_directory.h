// The folder of a running job, in the runtime folder of this user: the agent's socket and store. It
// is how a command finds the only job that runs.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rewire {

// Where jobs' folders are: `given`, or $XDG_RUNTIME_DIR/rewire, or /tmp/rewire-UID.
std::string RuntimeDirectory(const std::string& given);

class JobDirectory {
 public:
  // Makes runtime/name, readable by its owner alone. Fails when a folder of this name exists and
  // its agent answers, and when the runtime folder belongs to somebody else.
  static absl::StatusOr<JobDirectory> Make(const std::string& runtime, const std::string& name);
  JobDirectory(JobDirectory&& other) noexcept;
  JobDirectory& operator=(JobDirectory&&) = delete;
  // Removes what it made.
  ~JobDirectory();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string socket() const { return path_ + "/agent.sock"; }
  [[nodiscard]] std::string store() const { return path_ + "/world"; }

 private:
  JobDirectory(std::string path, std::string runtime)
      : path_(std::move(path)), runtime_(std::move(runtime)) {}
  std::string path_;
  std::string runtime_;  // removed too, if it is empty then and was made here
};

// The sockets in a runtime folder behind which an agent answers.
std::vector<std::string> LiveSockets(const std::string& runtime);
// `given`, or the only live one; an error that lists them when there are several, or that says
// where was looked when there is none.
absl::StatusOr<std::string> FindSocket(const std::string& given, const std::string& runtime);

}  // namespace rewire
