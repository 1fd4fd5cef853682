// Finds and asks an agent; see control_client.h. Called by the main thread of `rewire`.
#include "reconfig/control/cli/control_client.h"

#include <poll.h>
#include <sys/stat.h>

#include <cstdio>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control_messages.h"
#include "reconfig/control/cli/commands.h"
#include "reconfig/control/cli/option_checks.h"
#include "reconfig/control/launcher/job_directory.h"

namespace rewire::control {
namespace {

// The launcher's longest pause between two agents is 2 s (agent_process.cc), plus an agent's start.
constexpr Duration kBetweenAgents = seconds(5);

}  // namespace

absl::StatusOr<ControlClient> ControlClient::Connect(const std::string& socket) {
  const Time deadline = Now() + kBetweenAgents;
  for (;;) {
    UniqueFd fd;
    const SocketStatus s = ConnectUnix(socket, deadline, &fd);
    if (s.ok()) return ControlClient(FramedSocket(std::move(fd)), socket);
    struct stat st {};
    const bool left = lstat(socket.c_str(), &st) == 0 && S_ISSOCK(st.st_mode);
    if (!left || s.code == SocketCode::kForeign || Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("no agent answers: ", s.text));
    }
    poll(nullptr, 0, 20);
  }
}

absl::StatusOr<nlohmann::json> ControlClient::Ask(const nlohmann::json& command, Duration within,
                                                  const OnProgress& on_progress) {
  const Time deadline = Now() + within;
  if (const SocketStatus s = socket_.Send(EncodeControl(command), deadline); !s.ok()) {
    return absl::AbortedError(absl::StrCat("the agent at ", path_, ": ", s.text));
  }
  for (;;) {
    std::string frame;
    if (const SocketStatus s = socket_.Receive(&frame, deadline); !s.ok()) {
      const std::string text = absl::StrCat("the agent at ", path_, ": ", s.text);
      if (s.code == SocketCode::kTimeout) return absl::DeadlineExceededError(text);
      return absl::AbortedError(text);
    }
    REWIRE_ASSIGN_OR_RETURN(nlohmann::json answer, DecodeControl(frame));
    const auto ok = answer.find("ok");
    if (ok == answer.end() || !ok->is_boolean()) {
      if (on_progress) on_progress(answer);
      continue;
    }
    if (ok->get<bool>()) return answer;
    const std::string error = answer.value("error", "refused without a reason");
    if (answer.value("timeout", false)) return absl::DeadlineExceededError(error);
    return absl::FailedPreconditionError(error);
  }
}

std::shared_ptr<AgentChoice> AddAgentChoice(CLI::App* command, bool progress) {
  auto choice = std::make_shared<AgentChoice>();
  CLI::Option* const socket =
      command
          ->add_option(
              "--socket", choice->socket,
              "Path of the agent's socket; default: REWIRE_SOCKET, or the only running job")
          ->check(NotEmpty());
  command->add_option("--job", choice->job, "Name of the job, whose folder has the socket")
      ->check(JobName())
      ->excludes(socket);
  command->add_option("--dir", choice->directory, "Runtime folder in which the job is searched")
      ->check(NotEmpty());
  command->add_flag("--json", choice->json, "Print one JSON object on standard output");
  if (progress)
    command->add_flag("-q,--quiet", choice->quiet, "Print no progress on standard error");
  return choice;
}

absl::StatusOr<nlohmann::json> AskAgent(const AgentChoice& choice, const nlohmann::json& command,
                                        Duration within) {
  const std::string runtime = RuntimeDirectory(choice.directory);
  std::string given = choice.socket.empty() ? Settings::Get().socket() : choice.socket;
  if (!choice.job.empty()) given = SocketOfJob(runtime, choice.job);
  REWIRE_ASSIGN_OR_RETURN(const std::string socket, FindSocket(given, runtime));
  REWIRE_ASSIGN_OR_RETURN(ControlClient client, ControlClient::Connect(socket));
  const bool show = !choice.json && !choice.quiet;
  // Not the change's time, which begins again with each attempt.
  const auto progress = [show, begin = Now()](const nlohmann::json& p) {
    if (!show) return;
    fprintf(stderr, "[%7.3f s] %-11s %s\n", ToMilliseconds(Now() - begin) / 1000,
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
