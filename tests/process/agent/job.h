// A job of toy members under the rewire command.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {

// A job of toy members.
class Job {
 public:
  // script: run by /bin/sh in the place of the toy member, which is its $0; $1 is the stop file.
  Job(int members, int max, std::vector<std::string> options = {}, std::string script = "");
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
