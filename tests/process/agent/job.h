// Runs the rewire command for tests: to its end with its output, or as a job in the background.
// Every wait has a deadline; only what was started here is ended.
#pragma once

#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

struct CommandResult {
  int status = -1;  // 128 + signal when killed; -1: it did not end in time
  std::string out;
  std::string err;
};

// A process with both its streams in pipes.
class Background {
 public:
  explicit Background(const std::vector<std::string>& argv,
                      const std::vector<std::string>& more_environment = {});
  ~Background();
  [[nodiscard]] pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Reads until `done` is true of what was written so far; false at the deadline.
  bool ReadUntil(const std::function<bool(const CommandResult&)>& done, Duration within);
  // Reads to the end.
  CommandResult End(Duration within);

 private:
  bool ReadSome(Time deadline);
  pid_t pid_ = 0;
  UniqueFd out_;
  UniqueFd err_;
  CommandResult result_;
};

// The rewire command of this build with these arguments, to its end.
CommandResult Rewire(std::vector<std::string> arguments, Duration within = seconds(30));

// A folder that is removed with everything in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A job of toy members.
class Job {
 public:
  Job(int members, int max, std::vector<std::string> options = {});
  [[nodiscard]] std::string socket() const { return folder_ / "agent.sock"; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  Background& launcher() { return launcher_; }
  // `rewire COMMAND --socket ... arguments`.
  CommandResult Ask(const std::string& command, std::vector<std::string> arguments = {});
  nlohmann::json Status();
  std::vector<int> World();
  // Lets the members end, and gives the job's result.
  CommandResult Finish();

 private:
  TemporaryFolder folder_;
  Background launcher_;
};

}  // namespace rewire
