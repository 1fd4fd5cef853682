#include "reconfig/control/cli/control_client.h"

#include <poll.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control.h"

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
    return absl::UnavailableError(absl::StrCat("the agent at ", path_, ": ", s.text));
  }
  for (;;) {
    std::string frame;
    if (const SocketStatus s = socket_.Receive(&frame, deadline); !s.ok()) {
      const std::string text = absl::StrCat("the agent at ", path_, ": ", s.text);
      if (s.code == SocketCode::kTimeout) return absl::DeadlineExceededError(text);
      return absl::UnavailableError(text);
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

}  // namespace rewire::control
