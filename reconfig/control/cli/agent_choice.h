// Shared by the commands that talk to an agent: find the agent, ask, print. For the command's
// thread.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/control_client.h"

namespace rewire::control {

// Adds --socket, --dir and --json, and with `progress` also --quiet.
std::shared_ptr<AgentChoice> AddAgentChoice(CLI::App* command, bool progress);

// Asks the chosen agent. Progress goes to standard error, except with --json or --quiet.
absl::StatusOr<nlohmann::json> AskAgent(const AgentChoice& choice, const nlohmann::json& command,
                                        Duration within);
// Prints the error of a command on standard error, and with --json also {"ok": false, "error": ...}
// on standard output. Returns kExitRefused.
int Failed(const AgentChoice& choice, const absl::Status& status);

}  // namespace rewire::control
