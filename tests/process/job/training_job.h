// A job of small gpt_train members under `rewire run --sim`, whose result must be bit-equal to that
// of an undisturbed run. One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {

struct TrainingOptions {
  int members = 2;
  int max = 4;
  int zero = 1;
  bool net_plugin = false;                    // over ours, and nothing else
  std::vector<std::string> environment = {};  // of the members: "NAME=value"
};

class TrainingJob {
 public:
  // Returns when every member has done a step.
  explicit TrainingJob(const TrainingOptions& options);
  // When something failed it shows what the job said.
  ~TrainingJob();

  [[nodiscard]] std::string socket() const { return folder_ / "agent.sock"; }
  [[nodiscard]] std::string store() const { return folder_ / "world"; }
  Background& launcher() { return launcher_; }
  // `rewire COMMAND --socket ... arguments`.
  CommandResult Ask(const std::string& command, std::vector<std::string> arguments = {});
  // The same without waiting for its end.
  [[nodiscard]] Background Begin(const std::string& command, std::vector<std::string> arguments);
  nlohmann::json Status();
  std::vector<int> World();
  pid_t PidOfSlot(size_t slot);
  pid_t AgentPid();
  // The agent answers, and nothing is under way in an epoch of at least this.
  void WaitSteady(int epoch = 1);
  // The newest step of any member, by the logs; -1: none.
  [[nodiscard]] int LastStep() const;
  // Until `more` further steps are done.
  void Train(int more = 3);
  // Lets the job end, and checks that its end is that of an undisturbed run of as many steps.
  CommandResult FinishExact();

 private:
  [[nodiscard]] std::vector<std::string> Arguments() const;

  const TrainingOptions options_;
  TemporaryFolder folder_;
  Background launcher_;
};

// "final step ..." in an output; empty: none.
std::string FinalLine(const std::string& output);
// The loopback addresses on which a process listens.
std::vector<std::string> ListeningAddresses(pid_t pid);
// Whether a process is gone, or a zombie.
bool Ended(pid_t pid);
// False when the condition does not come true within 30 s.
bool Eventually(const std::function<bool()>& condition);

}  // namespace rewire
