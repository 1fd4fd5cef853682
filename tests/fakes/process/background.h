// Runs programs for tests: to their end with their output, or in the background. Every wait has a
// deadline. Only processes started here are ended. Owned by one thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

struct CommandResult {
  int status = -1;  // 128 + signal when killed; -1: timed out
  std::string out;
  std::string err;
};

// A process whose two output streams are pipes.
class Background {
 public:
  explicit Background(const std::vector<std::string>& argv,
                      const std::vector<std::string>& more_environment = {});
  ~Background();
  [[nodiscard]] pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // Reads until `done` accepts the output so far; false at the deadline.
  bool ReadUntil(const std::function<bool(const CommandResult&)>& done, Duration within);
  // Reads until the process ends.
  CommandResult End(Duration within);

 private:
  bool ReadSome(Time deadline);
  pid_t pid_ = 0;
  UniqueFd out_;
  UniqueFd err_;
  CommandResult result_;
};

// Runs this build's rewire command with these arguments until its end.
CommandResult Rewire(std::vector<std::string> arguments, Duration within = seconds(30));

}  // namespace rewire
