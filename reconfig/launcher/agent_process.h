// The agent as the launcher's child: started, connected to, started again when it dies.
// Owned by the launcher; its thread only.
#pragma once

#include <poll.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/launcher/child.h"

namespace rewire {

class AgentProcess {
 public:
  using OnEvent = std::function<void(const nlohmann::json& event)>;
  // argv: of `rewire agent ...`, without --ready-fd. reports: made for every connection, the first
  // things that a new agent must know.
  AgentProcess(std::vector<std::string> argv, std::vector<std::string> environment,
               std::string socket, int stderr_fd, OnEvent on_event);
  ~AgentProcess();

  // Waits until the agent serves; its own words about a failure are on its standard error.
  absl::Status StartAndWait(Time deadline);
  // Sends an event, now or when the next agent is there.
  void Tell(const nlohmann::json& event);
  // Told first to every agent that comes after this one.
  void SetReports(std::function<std::vector<nlohmann::json>()> reports) {
    reports_ = std::move(reports);
  }

  void AddPolls(std::vector<pollfd>* polls) const;
  void Handle(Time now, const std::vector<pollfd>& polls);
  // The child may have ended: reaps it, and plans its restart.
  void Reap(Time now);
  void Tick(Time now);
  [[nodiscard]] std::optional<Time> NextDeadline() const { return restart_at_; }

  // SIGTERM; SIGKILL when it is not gone at the deadline.
  void Stop(Time deadline);
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  absl::Status Start();
  void Connect(Time now);
  void Disconnect();
  void ReadEvents();

  const std::vector<std::string> argv_;
  const std::vector<std::string> environment_;
  const std::string socket_path_;
  const int stderr_fd_;
  const OnEvent on_event_;
  std::function<std::vector<nlohmann::json>()> reports_;
  pid_t pid_ = 0;
  Time started_{};
  int failures_ = 0;  // in a row
  std::optional<Time> restart_at_;
  UniqueFd ready_;
  FramedSocket connection_;
  std::vector<nlohmann::json> backlog_;
};

}  // namespace rewire
