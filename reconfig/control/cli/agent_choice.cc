#include "reconfig/control/cli/agent_choice.h"

#include <cstdio>
#include <iostream>

#include "reconfig/base/settings.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control.h"
#include "reconfig/control/launcher/job_directory.h"

namespace rewire::control {

std::shared_ptr<AgentChoice> AddAgentChoice(CLI::App* command, bool progress) {
  auto choice = std::make_shared<AgentChoice>();
  command->add_option(
      "--socket", choice->socket,
      "Path of the agent's socket; default: REWIRE_SOCKET, or the only running job");
  command->add_option("--dir", choice->directory, "Runtime folder in which the job is searched");
  command->add_flag("--json", choice->json, "Print one JSON object on standard output");
  if (progress)
    command->add_flag("-q,--quiet", choice->quiet, "Print no progress on standard error");
  return choice;
}

absl::StatusOr<nlohmann::json> AskAgent(const AgentChoice& choice, const nlohmann::json& command,
                                        Duration within) {
  const std::string given = choice.socket.empty() ? Settings::Get().socket() : choice.socket;
  REWIRE_ASSIGN_OR_RETURN(const std::string socket,
                          FindSocket(given, RuntimeDirectory(choice.directory)));
  REWIRE_ASSIGN_OR_RETURN(ControlClient client, ControlClient::Connect(socket));
  const bool show = !choice.json && !choice.quiet;
  const auto progress = [show](const nlohmann::json& p) {
    if (!show) return;
    fprintf(stderr, "[%7.3f s] %-11s %s\n", p.value("elapsed_ms", 0.0) / 1000,
            p.value("phase", "").c_str(), p.value("progress", "").c_str());
  };
  return client.Ask(command, within, progress);
}

int Failed(const AgentChoice& choice, const absl::Status& status) {
  const std::string text(status.message());
  if (choice.json) std::cout << ControlError(text).dump() << "\n";
  return Refused(text);
}

}  // namespace rewire::control
