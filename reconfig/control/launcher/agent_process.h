// Runs the agent as the launcher's child: starts it, connects to it, and starts it again after its
// death. Owned by the launcher's thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/event_loop.h"
#include "reconfig/base/framed_socket.h"
#include "reconfig/control/launcher/child.h"

namespace rewire::control {

class AgentProcess {
 public:
  using OnEvent = std::function<void(const nlohmann::json& event)>;
  // argv: the command `rewire agent ...` without --ready-fd and --resume. on_event: called from
  // Handle(), Reap() and Stop() for each event of the agent.
  AgentProcess(std::vector<std::string> argv, std::vector<std::string> environment,
               std::string socket, int stderr_fd, OnEvent on_event);
  ~AgentProcess();

  // Waits until the agent serves. A failed agent writes its error to its standard error.
  absl::Status StartAndWait(Time deadline);
  // Sends an event now or, without a connection, when the next agent is connected.
  void Tell(const nlohmann::json& event);
  // reports: makes the first events for every later connection to an agent.
  void SetReports(std::function<std::vector<nlohmann::json>()> reports) {
    reports_ = std::move(reports);
  }

  void Watch(PollSet* turn) const;
  void Handle(Time now, const PollSet& turn);
  // Reaps the child if it has ended, and schedules its restart.
  void Reap(Time now);
  void Tick(Time now);

  // Sends SIGTERM, and SIGKILL to an agent that still runs at the deadline.
  void Stop(Time deadline);
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Returns whether no agent serves and the last starts have failed.
  [[nodiscard]] bool Hopeless() const { return !connection_.valid() && failures_ >= kMostFailures; }

 private:
  // resume: the job has had an agent that served.
  absl::Status Start(bool resume);
  void Connect(Time now);
  void Disconnect();
  void ReadEvents();

  static constexpr int kMostFailures = 10;  // with their pauses, about 10 s

  const std::vector<std::string> argv_;
  const std::vector<std::string> environment_;
  const std::string socket_path_;
  const int stderr_fd_;
  const OnEvent on_event_;
  std::function<std::vector<nlohmann::json>()> reports_;
  pid_t pid_ = 0;
  Time started_{};
  int failures_ = 0;  // consecutive
  std::optional<Time> restart_at_;
  UniqueFd ready_;
  FramedSocket connection_;
  std::vector<nlohmann::json> backlog_;
};

}  // namespace rewire::control
