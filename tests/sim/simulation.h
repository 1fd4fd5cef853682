// A whole job in one thread: the real leader and the real members, with a simulated clock, network
// and store, and with faults. One seed determines the run: the same seed gives the same
// Result::hash. Owned by one thread.
//
//   Result r = Simulation({.seed = 7}).Run();   // r.violations is empty: every promise was kept
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/elastic/leader/leader.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/ledger.h"
#include "tests/sim/process.h"
#include "tests/sim/seeded_random.h"

namespace rewire::sim {

struct SimulationOptions {
  uint64_t seed = 1;
  elastic::PlantedBug planted_bug = elastic::PlantedBug::kNone;
  bool print = false;  // prints every note and fault on standard output
  // Omits the faults and the kinds of state that the simulation did not have at first.
  bool plain = false;
};

// The deadline of every drain that has one, and of every reclaim notice.
inline constexpr Duration kDrainWithin = seconds(5);

struct Result {
  std::vector<std::string> violations;
  uint64_t hash = 0;
  uint64_t swaps = 0;
  uint64_t boundaries = 0;
  uint64_t losses = 0;
  uint64_t leader_restarts = 0;
  uint64_t versions = 0;
  bool stopped = false;      // the job was stopped; Simulation::MayEnd() has the valid reasons
  bool partitioned = false;  // the job had communicators over part of the members
};

class Simulation {
 public:
  explicit Simulation(SimulationOptions options);
  Result Run();

  // ---- for Process ----------------------------------------------------------------------------
  [[nodiscard]] Time now() const { return queue_.now(); }
  void At(Time time, std::function<void()> event) { queue_.At(time, std::move(event)); }
  void After(Duration delay, std::function<void()> event) { queue_.After(delay, std::move(event)); }
  [[nodiscard]] SeededRandom& random() { return random_; }
  [[nodiscard]] SeededRandom& more_random() { return more_random_; }
  [[nodiscard]] Ledger& ledger() { return ledger_; }
  [[nodiscard]] bool faults() const { return faults_; }
  [[nodiscard]] StateNeeds Needs(size_t slots) const;
  [[nodiscard]] bool sharded() const { return sharded_; }
  [[nodiscard]] bool has_volatile() const { return volatile_; }
  // Returns whether an update contains no collective operation.
  [[nodiscard]] bool local_updates() const { return local_updates_; }
  void CountInjectedFailure() { ++injected_failures_; }
  [[nodiscard]] const std::vector<CommunicatorId>& communicators() const { return communicators_; }
  // Returns the communicator of operation number `operation` in the step that makes `version`:
  // usually one of two communicators, in a few steps an idle communicator. In a partitioned job the
  // member's own pair is also used.
  [[nodiscard]] CommunicatorId CommunicatorFor(MemberId member, uint64_t version,
                                               uint32_t operation) const;
  // Returns the members of the communicator that `member` has, in the order of their ranks.
  [[nodiscard]] std::vector<MemberId> SpanOf(const CommunicatorId& c, MemberId member,
                                             const std::vector<WorldMember>& world) const;
  // Returns the names of the group communicators, and the slots of a slot's group in a world of
  // `slots`: neighbours in pairs, or all with the same parity.
  [[nodiscard]] const std::vector<std::string>& groups() const { return groups_; }
  [[nodiscard]] static std::vector<uint32_t> GroupOf(const std::string& name, uint32_t slot,
                                                     size_t slots);
  // A member has a group communicator with this identity.
  void Named(const CommunicatorId& c, const std::string& name) { names_[c] = name; }
  [[nodiscard]] bool PointToPoint(const CommunicatorId& c) const;
  // A member has destroyed a generation.
  void Destroyed(MemberId member, Epoch era, const elastic::GenerationId& generation);
  [[nodiscard]] std::optional<uint64_t> finish_at() const { return finish_at_; }
  void ToLeader(Process* from, const elastic::Message& message);
  void ProcessEnded(Process* process);
  void ProcessStopped(Process* process, const std::string& reason);
  void Issued(Process* by, Epoch era, const CommunicatorId& c, uint64_t index,
              const std::vector<WorldMember>& world);
  void CopyToBuddy(Process* from, Epoch era, const std::vector<WorldMember>& world,
                   uint64_t version);
  [[nodiscard]] bool SourcesStand() const;
  [[nodiscard]] uint64_t SourceVersion() const;

 private:
  // network.cc
  struct Connection {
    MemberId member = 0;
    bool open = true;
    bool known = false;  // the leader has received its Hello
    Time up{};           // arrival of the last message in each direction: messages keep their order
    Time down{};
  };
  void Connect(Process* process);
  void ToMember(MemberId member, const elastic::Message& message);
  void LeaderHears(int connection, const elastic::Message& message);
  // in_flight: whether messages that were sent before still arrive. They do if a process dies, and
  // may be lost if the connection is cut.
  void Break(int connection, bool in_flight, bool tell_process);
  // The leader notices the end of its connection to a member, after the last message at `last`.
  void LeaderLoses(int connection, Time last);
  Duration Latency();

  // simulation.cc
  void StartLeader();
  void CrashLeader(Duration down);
  void RunLeader(const std::function<void(std::vector<elastic::LeaderAction>*)>& input);
  void DoLeader(const elastic::LeaderAction& action);
  void TickLeader();
  [[nodiscard]] bool MayEnd(const std::string& reason) const;
  void JobEnds(const std::string& reason);
  // Returns whether a partitioned job lost a member and was stopped for this reason: not every
  // communicator spans the whole world.
  [[nodiscard]] bool PartitionedLoss(const std::string& reason) const;
  void CheckLost(const elastic::Lost& lost);
  void CheckDeadline(const elastic::Note& note);
  void Drained(MemberId member);  // the leader was told to drain the member in time
  void CheckDrain(const elastic::Note& note);
  void Store(const elastic::CompareAndSwap& swap, Duration slow);
  Process* Spawn(MemberId id);
  Process* Find(MemberId id) const;
  std::vector<Process*> Alive() const;
  void Print(const std::string& text) const;

  // faults.cc
  void PlanFaults();
  void OneFault();
  void OneRequest();
  void Ask(const elastic::ChangeRequest& request);
  // more_faults.cc
  void OneStall();
  void ManyDeaths();
  void CalledOffGrow();
  void Kill(Process* victim);
  void StallLeader(Duration duration);
  // faults.cc
  void MakeCommunicator();
  void Check();  // checks the conditions at the end
  bool StateIsLost() const;
  bool ReplicaIsLost() const;
  // Returns whether at most one member of a world is lost in which all copies have been made.
  bool MustSurvive() const;

  SimulationOptions options_;
  SeededRandom random_;
  SeededRandom more_random_;  // for newer choices: random_ then gives a seed the same values
  EventQueue queue_;
  Ledger ledger_;
  std::vector<CommunicatorId> communicators_;
  std::vector<std::string> groups_;
  std::map<CommunicatorId, std::string> names_;  // of group communicators
  // Some communicators span part of the members: only swaps change this job, and a loss ends it.
  bool partitioned_ = false;
  bool deadly_ = true;      // members also die; false in 3 of 4 partitioned jobs
  bool cooperates_ = true;  // false in half of the partitioned jobs: an unmodified program
  std::map<MemberId, std::unique_ptr<Process>> processes_;
  std::vector<std::unique_ptr<Process>> ended_;
  std::map<int, Connection> connections_;
  int next_connection_ = 1;
  std::map<MemberId, int> connection_of_;  // as the leader's owner sees it

  elastic::LeaderOptions leader_options_;
  std::unique_ptr<elastic::Leader> leader_;  // null: crashed
  uint64_t leader_life_ = 0;
  Time leader_tick_{};
  std::optional<uint64_t> crash_after_actions_;
  bool crash_at_commit_ = false;  // at the time when the next commit is sent to the store
  uint64_t leader_restarts_ = 0;
  Time leader_stalled_until_{};
  elastic::Phase phase_ = elastic::Phase::kForming;  // phase and epoch of the last note
  Epoch phase_epoch_ = 0;
  Time phase_since_{};
  Duration phase_stalled_{};   // time in this phase during which the leader's process did not run
  Duration leader_stalled_{};  // the same since the leader's start
  struct Drain {
    Time since{};
    Duration stalled{};  // leader_stalled_ at that time
  };
  std::set<MemberId> late_;           // members that were lost at the deadline of a drain
  std::map<MemberId, Drain> drains_;  // drains with a deadline that this leader knows
  std::deque<std::function<void(std::vector<elastic::LeaderAction>*)>> stalled_inputs_;

  bool sharded_ = true;  // some state exists once
  bool local_updates_ = false;
  bool volatile_ = false;  // some replicated state is volatile
  std::optional<WorldRecord> stored_;
  Time store_free_{};
  bool faults_ = true;
  uint64_t injected_failures_ = 0;
  uint64_t kills_ = 0;
  std::optional<uint64_t> finish_at_;
  std::string leader_stops_;  // why a leader stops the job, before the launcher knows
  std::optional<std::string> job_stopped_;
  std::map<std::tuple<Epoch, CommunicatorId, uint64_t>, std::set<MemberId>> waiting_;
};

}  // namespace rewire::sim
