// The agent: one process per node and job, with one thread. Owned by the agent's thread. The agent
// runs the leader's state machine, whose inputs are messages, exits of processes and time. Its
// actions are messages, compare-and-swaps, process starts and notes.
//
// The agent may be killed at any moment. The next agent opens the same store and the same socket
// path, members connect again, and the leader continues from the record.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/control/agent/connections.h"
#include "reconfig/control/agent/control_desk.h"
#include "reconfig/control/agent/launcher_link.h"
#include "reconfig/control/agent/metrics.h"
#include "reconfig/control/agent/metrics_server.h"
#include "reconfig/control/agent/run_queue_wait.h"
#include "reconfig/control/agent/transition_log.h"
#include "reconfig/control/store/store.h"
#include "reconfig/elastic/leader/leader.h"

namespace rewire::control {

struct AgentOptions {
  std::string socket;
  std::string store;
  std::string metrics;      // address of the HTTP server; empty: none
  std::string trace_dir;    // directory for one trace per transition; empty: none
  std::string job = "job";  // the job's name in outputs
  uint32_t members = 1;     // members 0 .. members-1 form the first world
  uint32_t max_members = 1;
  bool resume = false;  // the job has had an agent: its store and its key must exist
};

class Agent : private Connections::Events, private LauncherLink::Events {
 public:
  // Locks and reads the store, then listens. Fails when any of these fails.
  static absl::StatusOr<std::unique_ptr<Agent>> Start(AgentOptions options);
  ~Agent() override;

  // Serves until stop_fd is readable.
  absl::Status Run(int stop_fd);

 private:
  struct Link {
    Connections::Id connection = 0;
    uint64_t incarnation = 0;
  };
  Agent(AgentOptions options, std::unique_ptr<Store> store,
        std::unique_ptr<MetricsServer> metrics_server);

  // Connections::Events
  void OnFrame(Connections::Id id, const std::string& frame) override;
  void OnClosed(Connections::Id id, const std::string& why) override;
  // LauncherLink::Events
  void OnProcess(MemberId member, pid_t pid) override;
  void OnSpawned(const std::vector<MemberId>& members) override;
  void OnSpawnFailed(const std::vector<MemberId>& members, const std::string& why) override;
  void OnExited(MemberId member, const std::string& how, int status) override;

  void OnMemberFrame(Connections::Id id, const std::string& frame);
  void OnHello(Connections::Id id, const elastic::Hello& hello);
  // Called after a process's Witness connection (docs/protocol.md) has closed. Closes the member
  // connection of the same process.
  void OnWitnessClosed(Connections::Id witness, pid_t pid);
  void OnControlFrame(Connections::Id id, const std::string& frame);

  // An input of the leader. Feed() processes the input at once, or after the input that is being
  // processed, and then performs its actions.
  using Input = std::function<void(elastic::Leader::Out*)>;
  void Feed(Input input);
  void Do(const elastic::SendTo& send);
  void Do(const elastic::CompareAndSwap& swap);
  void Do(const elastic::Spawn& spawn);
  void Do(const elastic::Kick& kick);
  void Do(const elastic::EndProcess& end);
  void Do(const elastic::EndJob& end);
  void Do(const elastic::Note& note);
  [[nodiscard]] nlohmann::json StatusAnswer() const;
  // Tells the leader which silent members wait for a processor.
  void FindStarved();

  const AgentOptions options_;
  const std::unique_ptr<Store> store_;
  const std::unique_ptr<Metrics> metrics_;
  const std::unique_ptr<MetricsServer> metrics_server_;
  const Time started_;
  std::unique_ptr<elastic::Leader> leader_;
  std::unique_ptr<Connections> connections_;
  std::unique_ptr<LauncherLink> launcher_;
  std::unique_ptr<ControlDesk> desk_;
  TransitionLog log_;
  std::map<MemberId, Link> links_;
  std::map<Connections::Id, MemberId> members_;
  std::map<Connections::Id, pid_t> witnesses_;
  std::map<MemberId, pid_t> pids_;
  std::set<MemberId> ended_unattached_;  // initial members that ended with status 0
  RunQueueWait run_queue_wait_;
  std::deque<Input> inputs_;
  bool feeding_ = false;
  Time now_{};
};

}  // namespace rewire::control
