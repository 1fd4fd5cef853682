// The connection of a command to an agent: finds the agent that the command line chooses, asks it,
// and prints its progress and errors. Called by the main thread of `rewire`; every call has a
// deadline.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"

namespace rewire::control {

// One connection. Thread-compatible.
class ControlClient {
 public:
  using OnProgress = std::function<void(const nlohmann::json& progress)>;

  // Connects to an agent. Waits up to five seconds for an agent that is being started again.
  // kUnavailable: no agent answers.
  static absl::StatusOr<ControlClient> Connect(const std::string& socket);

  // Returns the last answer when it is ok; otherwise its error text (kFailedPrecondition;
  // kDeadlineExceeded when the agent reports that a wait timed out). kAborted: the connection
  // ended before the answer, and the agent may have begun.
  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& command, Duration within,
                                     const OnProgress& on_progress = nullptr);

 private:
  explicit ControlClient(FramedSocket socket, std::string path)
      : socket_(std::move(socket)), path_(std::move(path)) {}
  FramedSocket socket_;
  std::string path_;
};

// Options of every command that talks to an agent.
struct AgentChoice {
  std::string socket;
  std::string directory;
  std::string job;
  bool json = false;
  bool quiet = false;
};

// Adds --socket, --job, --dir and --json, and with `progress` also --quiet.
std::shared_ptr<AgentChoice> AddAgentChoice(CLI::App* command, bool progress);

// Asks the chosen agent. Progress goes to standard error, except with --json or --quiet.
absl::StatusOr<nlohmann::json> AskAgent(const AgentChoice& choice, const nlohmann::json& command,
                                        Duration within);
// Prints the error of a command on standard error, and with --json also {"ok": false, "error": ...}
// on standard output. Returns kExitRefused (commands.h).
int Failed(const AgentChoice& choice, const absl::Status& status);

}  // namespace rewire::control
