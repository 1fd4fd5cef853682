// The launcher on the other end of a control connection: it starts and ends processes for the
// leader and says how they ended. Owned by the agent; its thread only.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/agent/connections.h"
#include "reconfig/transition/leader_action.h"

namespace rewire {

class LauncherLink {
 public:
  // What the launcher tells. Called from OnEvent() and Tick().
  class Events {
   public:
    virtual ~Events() = default;
    virtual void OnProcess(MemberId member, pid_t pid) = 0;
    virtual void OnSpawned(const std::vector<MemberId>& members) = 0;
    virtual void OnSpawnFailed(const std::vector<MemberId>& members, const std::string& why) = 0;
    // How: "exited with status 3", "was killed by signal 9". status: 0 only for exit status 0.
    virtual void OnExited(MemberId member, const std::string& how, int status) = 0;
  };

  LauncherLink(Connections* connections, Events* events)
      : connections_(connections), events_(events) {}

  [[nodiscard]] bool IsLauncher(Connections::Id id) const { return connection_ == id; }
  [[nodiscard]] bool connected() const { return connection_ != 0; }
  // The first event of a launcher is {"command": "launch"}. kAlreadyExists: another launcher is
  // connected. Other errors: the event is wrong.
  absl::Status OnEvent(Connections::Id id, const nlohmann::json& event);
  void OnClosed(Connections::Id id);

  // Asks the launcher; without one for kPatience, OnSpawnFailed follows from Tick().
  void Start(Time now, const Spawn& spawn);
  void End(MemberId member);
  // The committed world, so that the launcher knows whose end is the job's end.
  void TellWorld(const World& world);
  // The job ends; also told to a launcher that connects later.
  void TellStop(const std::string& reason, bool survivors);

  void Tick(Time now);
  [[nodiscard]] std::optional<Time> NextDeadline() const;

 private:
  static constexpr Duration kPatience = seconds(5);
  void Send(const nlohmann::json& event);

  Connections* const connections_;
  Events* const events_;
  Connections::Id connection_ = 0;
  // Not yet asked for: there is no launcher.
  std::vector<std::pair<Time, Spawn>> waiting_;
  // The last ones told, for a launcher that connects again.
  nlohmann::json world_;
  nlohmann::json stop_;
};

}  // namespace rewire
