// The agent's end of the control connection to the launcher, which starts and ends processes for
// the leader and reports their exits. Owned by the agent's thread.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/control/agent/connections.h"
#include "reconfig/elastic/leader/leader_action.h"

namespace rewire::control {

class LauncherLink {
 public:
  // Events from the launcher. Called from OnEvent() and Tick().
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnProcess(MemberId member, pid_t pid) = 0;
    virtual void OnSpawned(const std::vector<MemberId>& members) = 0;
    virtual void OnSpawnFailed(const std::vector<MemberId>& members, const std::string& why) = 0;
    // how: "exited with status 3", "was killed by signal 9". status: 0 only for exit status 0.
    virtual void OnExited(MemberId member, const std::string& how, int status) = 0;
  };

  LauncherLink(Connections* connections, Events* events)
      : connections_(connections), events_(events) {}

  [[nodiscard]] bool IsLauncher(Connections::Id id) const { return connection_ == id; }
  [[nodiscard]] bool connected() const { return connection_ != 0; }
  // Processes an event. A launcher's first event is {"command": "launch"}. kAlreadyExists: another
  // launcher is connected. Other errors: the event is malformed.
  absl::Status OnEvent(Connections::Id id, const nlohmann::json& event);
  void OnClosed(Connections::Id id);

  // Asks the launcher to start processes. Without a launcher for kPatience, Tick() calls
  // OnSpawnFailed.
  void Start(Time now, const elastic::Spawn& spawn);
  void End(MemberId member);
  // Sends the committed world, so that the launcher knows which exits end the job.
  void TellWorld(const World& world);
  // Reports the end of the job, also to a launcher that connects later. survivors: members of the
  // world remain, so `rewire run` returns 1 even if all processes end with status 0.
  void TellStop(const std::string& reason, bool survivors);

  void Tick(Time now);
  [[nodiscard]] std::optional<Time> NextDeadline() const;

 private:
  static constexpr Duration kPatience = seconds(5);
  void Send(const nlohmann::json& event);

  Connections* const connections_;
  Events* const events_;
  Connections::Id connection_ = 0;
  // Requests that wait for a launcher.
  std::vector<std::pair<Time, elastic::Spawn>> waiting_;
  // The last events sent, for a launcher that connects again.
  nlohmann::json world_;
  nlohmann::json stop_;
};

}  // namespace rewire::control
