// Runs a job of toy members under the rewire command, for process tests. Thread-compatible.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {

class Job {
 public:
  // Starts the job and waits until all members have entered epoch 1. /bin/sh runs a nonempty
  // `script` instead of the toy member; the script's $0 is the toy member and $1 the stop file.
  Job(int members, int max, const std::vector<std::string>& options = {},
      const std::string& script = "");
  [[nodiscard]] std::string socket() const { return folder_ / "agent.sock"; }
  [[nodiscard]] const TemporaryFolder& folder() const { return folder_; }
  Background& launcher() { return launcher_; }
  // Runs `rewire COMMAND --socket ... arguments`.
  CommandResult Ask(const std::string& command, std::vector<std::string> arguments = {});
  nlohmann::json Status();
  std::vector<int> World();
  // Makes the stop file, so that the members end, and returns the job's result.
  CommandResult Finish();

 private:
  TemporaryFolder folder_;
  Background launcher_;
};

}  // namespace rewire
