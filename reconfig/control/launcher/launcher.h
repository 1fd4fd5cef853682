// `rewire run`: one thread that starts an agent and the members of a job and forwards their output
// and the signals. The launcher reports every exit to the agent at once, and returns the job's
// status.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/control/launcher/agent_process.h"
#include "reconfig/control/launcher/child.h"
#include "reconfig/control/launcher/member_environment.h"
#include "reconfig/control/launcher/output.h"

namespace rewire::control {

struct LaunchOptions {
  std::vector<std::string> program;
  uint32_t members = 1;
  uint32_t max_members = 1;
  Duration grace = seconds(30);            // from Rewire's SIGTERM to the SIGKILL
  JobEnvironment job;                      // for every member
  std::vector<std::string> agent_command;  // empty: no agent
  std::string agent_socket;
  int guard_fd = -1;  // readable when the guard has ended (guard.h)
};

class Launcher {
 public:
  explicit Launcher(LaunchOptions options);
  ~Launcher();

  // Runs the job to its end. Returns a status of 0 to 255 for exit(3), or the reason why the job
  // could not start (kNotFound and kPermissionDenied: of the program).
  absl::StatusOr<int> Run();

 private:
  struct Member {
    MemberId id = 0;
    uint32_t local_rank = 0;
    pid_t pid = 0;  // 0: ended
    std::vector<ForwardedPipe> outputs;
    ChildEnd end;
    uint64_t ended_as = 0;  // the order of ends: 1 for the first
    std::optional<Time> kill_at;
  };

  absl::Status BlockSignals();
  absl::Status StartAgent();
  // Kills the processes that members have started and left, and waits until these have ended.
  void ReportLeftRunning();
  void EndDescendants();
  absl::Status StartMember(MemberId id, uint32_t local_rank, uint32_t rank, uint32_t world_size);
  // Returns a GPU without a process or, without such a GPU, one without a member of `keep`.
  [[nodiscard]] uint32_t FreeLocalRank(const std::set<MemberId>& keep) const;
  void KillEnding(uint32_t local_rank);
  static nlohmann::json ExitReport(const Member& member);
  void Loop();
  void OnSignals(Time now);
  void OnTerminate(Time now, int signal);
  void OnGuardEnd();
  void ReapMembers(Time now);
  void OnMemberEnd(Time now, Member* member, const ChildEnd& end);
  void OnAgentEvent(const nlohmann::json& event);
  void OnSpawn(const nlohmann::json& event);
  void Tick(Time now);
  // Says, once, that the agent has stopped the job, or that the job has ended by itself.
  void ReportStop(Time now);
  void SignalAll(int signal);
  // Returns whether a process of the job runs, or one of the last world.
  [[nodiscard]] bool Runs(bool in_world) const;
  [[nodiscard]] bool InLastWorld(MemberId id) const;
  [[nodiscard]] int ExitStatus() const;
  // Returns the children that EndDescendants() does not end: the agent.
  [[nodiscard]] std::set<pid_t> Spared() const;
  void FlushAtEnd();

  const LaunchOptions options_;
  const std::vector<std::string> environment_;
  UniqueFd signals_;
  Output out_{1};
  Output err_{2};
  std::map<MemberId, Member> members_;
  std::optional<ForwardedPipe> agent_output_;
  std::unique_ptr<AgentProcess> agent_;
  std::set<MemberId> world_;  // the last world that the agent reported
  bool told_ = false;
  uint64_t ended_ = 0;
  bool ending_ = false;  // all members have ended
  bool guard_ended_ = false;
  bool stopped_ = false;  // the agent has stopped a job that still had members
  std::string stop_reason_;
  std::optional<Time>
      stop_said_by_;      // when the reason is printed at the latest; null: nothing to say
  int terminations_ = 0;  // signals that asked for the job's end
  std::optional<Time> give_up_at_;  // when the remaining processes are asked to end
  std::optional<Time> rest_until_;  // the same, after the last world's processes have ended
};

}  // namespace rewire::control
