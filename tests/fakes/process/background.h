// Runs programs for tests: to their end with their output, or in the background. Every wait has a
// deadline; only what was started here is ended. One thread.
#pragma once

#include <sys/types.h>

#include <functional>
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

}  // namespace rewire
