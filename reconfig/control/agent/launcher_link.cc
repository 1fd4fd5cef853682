// The events to and from the launcher; see launcher_link.h. Owned by the agent's thread.
#include "reconfig/control/agent/launcher_link.h"

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control_messages.h"

namespace rewire::control {
namespace {

using nlohmann::json;

absl::StatusOr<std::vector<MemberId>> MemberList(const json& event) {
  const auto found = event.find("members");
  std::vector<MemberId> out;
  bool good = found != event.end() && found->is_array();
  for (size_t i = 0; good && i < found->size(); ++i) {
    good = (*found)[i].is_number_unsigned() && (*found)[i].get<uint64_t>() <= UINT32_MAX;
    if (good) out.push_back((*found)[i].get<MemberId>());
  }
  if (!good) return absl::InvalidArgumentError("field 'members' must be a list of member ids");
  return out;
}

}  // namespace

absl::Status LauncherLink::OnEvent(Connections::Id id, const json& event) {
  REWIRE_ASSIGN_OR_RETURN(const std::string name, TextField(event, "command"));
  if (name == "launch") {
    if (connection_ != 0 && connection_ != id) {
      connections_->ReadNow(connection_);  // its end may have arrived already
      if (connections_->IsOpen(connection_)) {
        return absl::AlreadyExistsError(absl::StrCat(
            "launch: process ", connections_->PidOf(id), ": process ",
            connections_->PidOf(connection_), " is this job's launcher and is still connected"));
      }
    }
    connection_ = id;
    if (!world_.is_null()) Send(world_);
    if (!stop_.is_null()) Send(stop_);
    std::vector<std::pair<Time, elastic::Spawn>> waiting;
    waiting.swap(waiting_);
    for (const auto& [since, spawn] : waiting) Start(since, spawn);
    return absl::OkStatus();
  }
  if (connection_ != id)
    return absl::InvalidArgumentError(absl::StrCat("command '", name, "' from process ",
                                                   connections_->PidOf(id),
                                                   ": only the launcher may "
                                                   "send it"));
  if (name == "process") {
    REWIRE_ASSIGN_OR_RETURN(const auto member, NumberField(event, "member", 0, UINT32_MAX));
    REWIRE_ASSIGN_OR_RETURN(const auto pid, NumberField(event, "pid", 1, INT32_MAX));
    if (!member || !pid) return absl::InvalidArgumentError("'process' without member or pid");
    events_->OnProcess(static_cast<MemberId>(*member), static_cast<pid_t>(*pid));
    return absl::OkStatus();
  }
  if (name == "exited") {
    REWIRE_ASSIGN_OR_RETURN(const auto member, NumberField(event, "member", 0, UINT32_MAX));
    REWIRE_ASSIGN_OR_RETURN(const std::string how, TextField(event, "how"));
    REWIRE_ASSIGN_OR_RETURN(const auto status, NumberField(event, "status", 0, 255));
    if (!member || !status) {
      return absl::InvalidArgumentError("'exited' without member or status");
    }
    events_->OnExited(static_cast<MemberId>(*member), how, static_cast<int>(*status));
    return absl::OkStatus();
  }
  if (name == "spawned" || name == "spawn_failed") {
    REWIRE_ASSIGN_OR_RETURN(const std::vector<MemberId> members, MemberList(event));
    REWIRE_ASSIGN_OR_RETURN(const std::string reason, TextField(event, "reason"));
    if (name == "spawned") {
      events_->OnSpawned(members);
    } else {
      events_->OnSpawnFailed(members, reason);
    }
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("unknown event '" + name + "' from the launcher");
}

void LauncherLink::OnClosed(Connections::Id id) {
  if (connection_ == id) connection_ = 0;
}

void LauncherLink::Send(const json& event) {
  if (connection_ != 0) connections_->Send(connection_, EncodeControl(event));
}

void LauncherLink::Start(Time now, const elastic::Spawn& spawn) {
  if (connection_ == 0) {
    waiting_.emplace_back(now, spawn);
    return;
  }
  Send({{"event", "spawn"},
        {"members", spawn.members},
        {"slots", spawn.slots},
        {"stay", spawn.stay}});
}

void LauncherLink::End(MemberId member) { Send({{"event", "end"}, {"member", member}}); }

void LauncherLink::TellWorld(const World& world) {
  json members = json::array();
  for (const WorldMember& m : world.members) members.push_back(m.member);
  json told = {{"event", "world"}, {"epoch", world.epoch}, {"members", members}};
  if (told == world_) return;
  world_ = std::move(told);
  Send(world_);
}

void LauncherLink::TellStop(const std::string& reason, bool survivors) {
  stop_ = {{"event", "stop"}, {"reason", reason}, {"survivors", survivors}};
  Send(stop_);
}

void LauncherLink::Tick(Time now) {
  while (!waiting_.empty() && now >= waiting_.front().first + kPatience) {
    const elastic::Spawn spawn = waiting_.front().second;
    waiting_.erase(waiting_.begin());
    events_->OnSpawnFailed(spawn.members,
                           "no launcher (`rewire run`) is connected to start processes");
  }
}

std::optional<Time> LauncherLink::NextDeadline() const {
  if (waiting_.empty()) return std::nullopt;
  return waiting_.front().first + kPatience;
}

}  // namespace rewire::control
