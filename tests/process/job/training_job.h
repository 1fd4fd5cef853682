// A job of small gpt_train members under `rewire run --sim`, whose result must be bit-equal to that
// of an undisturbed run. Owned by one thread.
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
  bool net_plugin = false;                    // communicates only over Rewire's net plugin
  std::vector<std::string> environment = {};  // for the members: "NAME=value"
};

class TrainingJob {
 public:
  // Returns when every member has completed a step.
  explicit TrainingJob(const TrainingOptions& options);
  // After a failure it prints the job's output.
  ~TrainingJob();

  [[nodiscard]] std::string socket() const { return folder_ / "agent.sock"; }
  [[nodiscard]] std::string store() const { return folder_ / "world"; }
  Background& launcher() { return launcher_; }
  // Runs `rewire COMMAND --socket ... arguments`.
  CommandResult Ask(const std::string& command, std::vector<std::string> arguments = {});
  // Starts the command without waiting for its end.
  [[nodiscard]] Background Begin(const std::string& command, std::vector<std::string> arguments);
  nlohmann::json Status();
  std::vector<int> World();
  pid_t PidOfSlot(size_t slot);
  pid_t AgentPid();
  // Waits until the agent answers and no change is pending in an epoch of at least `epoch`.
  void WaitSteady(int epoch = 1);
  // Returns the newest step of any member, from the logs; -1: none.
  [[nodiscard]] int LastStep() const;
  // Waits until `more` further steps are done.
  void Train(int more = 3);
  // Ends the job, and checks that its result equals an undisturbed run of the same number of steps.
  CommandResult FinishExact();

 private:
  [[nodiscard]] std::vector<std::string> Arguments() const;

  const TrainingOptions options_;
  TemporaryFolder folder_;
  Background launcher_;
};

// Returns the line "final step ..." of an output; empty: none.
std::string FinalLine(const std::string& output);
// Returns the loopback addresses on which a process listens.
std::vector<std::string> ListeningAddresses(pid_t pid);
// Returns whether a process has ended or is a zombie.
bool Ended(pid_t pid);
// Returns false if the condition does not become true within 30 s.
bool Eventually(const std::function<bool()>& condition);

}  // namespace rewire
