// What the commands that talk to an agent have in common: finding it, asking, printing.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "reconfig/cli/commands.h"
#include "reconfig/cli/control_client.h"

namespace rewire {

// Adds --socket, --dir and --json (and --quiet where there is progress).
std::shared_ptr<AgentChoice> AddAgentChoice(CLI::App* command, bool progress);

// Asks the chosen agent; progress goes to standard error unless it is not wanted.
absl::StatusOr<nlohmann::json> AskAgent(const AgentChoice& choice, const nlohmann::json& command,
                                        Duration within);
// Prints why a command failed: as {"ok": false, "error": ...} on standard output with --json, and
// on standard error always.
int Failed(const AgentChoice& choice, const absl::Status& status);

}  // namespace rewire
