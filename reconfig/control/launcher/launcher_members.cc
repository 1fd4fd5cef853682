// Starts the members of a job, also those of a later world; see launcher.h. Owned by the launcher's
// thread.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/launcher/child.h"
#include "reconfig/control/launcher/launcher.h"

namespace rewire::control {

uint32_t Launcher::FreeLocalRank(const std::set<MemberId>& keep) const {
  std::set<uint32_t> running;
  std::set<uint32_t> kept;
  for (const auto& [id, m] : members_) {
    if (m.pid == 0) continue;
    running.insert(m.local_rank);
    if (keep.contains(id)) kept.insert(m.local_rank);
  }
  for (const std::set<uint32_t>& used : {running, kept}) {
    for (uint32_t rank = 0; rank < options_.max_members; ++rank) {
      if (!used.contains(rank)) return rank;
    }
  }
  return 0;
}

absl::Status Launcher::StartMember(MemberId id, uint32_t local_rank, uint32_t rank,
                                   uint32_t world_size) {
  MemberPlace place{id, rank, local_rank, world_size};
  Member m;
  m.id = id;
  m.local_rank = local_rank;
  ChildSpec spec;
  spec.argv = options_.program;
  REWIRE_ASSIGN_OR_RETURN(spec.environment, MemberEnvironment(environment_, options_.job, place));
  UniqueFd writes[2];
  for (int i = 0; i < 2; ++i) {
    REWIRE_ASSIGN_OR_RETURN(ForwardedPipe output,
                            ForwardedPipe::Make(absl::StrCat("[member ", id, "] "),
                                                i == 0 ? &out_ : &err_, &writes[i]));
    m.outputs.push_back(std::move(output));
  }
  spec.stdout_fd = writes[0].get();
  spec.stderr_fd = writes[1].get();
  // A terminal is not inherited: a member is not in its foreground group, so a read would stop the
  // member.
  if (id == 0 && isatty(0) == 0 && fcntl(0, F_GETFD) >= 0) spec.stdin_fd = 0;
  spec.death_signal = SIGKILL;
  REWIRE_ASSIGN_OR_RETURN(m.pid, StartChild(spec));
  if (agent_) agent_->Tell({{"command", "process"}, {"member", id}, {"pid", m.pid}});
  members_[id] = std::move(m);
  return absl::OkStatus();
}

void Launcher::OnSpawn(const nlohmann::json& event) {
  const uint32_t slots = std::max(1u, event.at("slots").get<uint32_t>());
  // The members of the next world. The others leave or end soon, and may share their GPU.
  std::set<MemberId> keep;
  for (const char* who : {"members", "stay"}) {
    for (const nlohmann::json& m : event.at(who)) keep.insert(m.get<MemberId>());
  }
  for (const nlohmann::json& entry : event.at("members")) {
    const auto id = entry.get<MemberId>();
    nlohmann::json answer = {{"command", "spawned"}, {"members", {id}}};
    absl::Status started;
    if (terminations_ > 0 || ending_) {
      started = absl::FailedPreconditionError("the job is being ended");
    } else if (members_.count(id) == 0) {  // runs already, when a new agent asks again
      const uint32_t local = FreeLocalRank(keep);
      KillEnding(local);
      started = StartMember(id, local, local % slots, slots);
    }
    if (!started.ok()) {
      answer["command"] = "spawn_failed";
      answer["reason"] = std::string(started.message());
    }
    agent_->Tell(answer);
  }
}

// A process that was told to end, because it is lost, may hold the GPU's memory.
void Launcher::KillEnding(uint32_t local_rank) {
  for (const auto& [id, m] : members_) {
    if (m.pid != 0 && m.local_rank == local_rank && m.kill_at) kill(-m.pid, SIGKILL);
  }
}

}  // namespace rewire::control
