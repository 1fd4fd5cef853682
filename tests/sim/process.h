// One training process of the simulation: the real Member state machine, with a model of the
// participant and of a data-parallel program with sharded state. Owned by the simulation's thread.
//
// The program repeats: a few collective operations, then an update, which is also collective. Some
// communicators are used in a few steps only, some span part of the members, and one carries only
// point-to-point operations. An operation ends when every member of its communicator has issued the
// operation. After each update the process copies its shard to the next slot; the next update waits
// for that copy.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/elastic/member/member.h"

namespace rewire::sim {

class Simulation;

class Process {
 public:
  Process(Simulation* sim, const elastic::MemberOptions& options);

  // ---- from the network
  void Connected();
  void Disconnected();
  void Receive(const elastic::Message& message);
  // ---- from the simulation
  void CreateCommunicator(const CommunicatorId& id);
  void Freeze(Duration duration);  // as SIGSTOP and SIGCONT
  void Reclaim(Duration within);
  void OperationDone(Epoch era, const CommunicatorId& id, uint64_t index);
  void BuddyCopyArrived(Epoch era, uint64_t version);  // copy of the previous slot's shard
  void BuddyCopyDone(Epoch era, uint64_t version);     // copy of the own shard

  [[nodiscard]] MemberId id() const { return options_.member; }
  [[nodiscard]] bool alive() const { return alive_; }
  [[nodiscard]] bool frozen() const;
  [[nodiscard]] elastic::Member& member() { return *member_; }
  [[nodiscard]] uint64_t version() const { return version_; }
  [[nodiscard]] bool standing() const { return state_ == State::kStanding; }
  [[nodiscard]] elastic::BoundaryInfo Info() const;
  [[nodiscard]] uint64_t UpdatesInWorld() const { return version_ - first_version_; }
  [[nodiscard]] bool abandoned() const { return abandoned_; }
  // Returns whether this process may still issue operations on this generation.
  [[nodiscard]] bool Needs(const elastic::GenerationId& generation) const;
  // Returns whether there are more generations than the current one and one or two pending ones.
  [[nodiscard]] bool HoldsTooMany() const;
  void Kill();
  void Tick();

  bool alive_ = true;
  int connection_ = 0;         // 0: none
  bool was_cut_off_ = false;   // a fault hit this process: it may later count as lost
  bool has_deadline_ = false;  // drained with a deadline; counts as lost after the deadline
  bool reclaimed_ = false;     // it has given a reclaim notice

 private:
  enum class State { kIdle, kComputing, kBlocked, kInOperation, kWaitingForCopy, kStanding };
  struct Communicator {
    std::string group;  // a group communicator's name; empty: none
    uint64_t issued = 0;
    bool open = true;
    Epoch generation = 0;
    bool point_to_point = false;
    std::optional<Cut> pledged;
    std::vector<elastic::PendingSwap> pending;
    bool begun = false;  // the warm-up operation of the first pending swap was issued
    std::optional<elastic::PendingSwap> passed;  // the last swap that left `pending` at its cut
    std::vector<Epoch> old;
  };

  void Run(const std::function<void(std::vector<elastic::MemberAction>*)>& input);
  void Do(const elastic::MemberAction& action);
  void Later(Duration delay, std::function<void(std::vector<elastic::MemberAction>*)> input);
  // The program; each function ends in a state or schedules a later event.
  void Program(Duration delay, std::function<void()> step);
  void Start();
  void NextOperation();
  void Issue();
  void AtUpdate();
  void Continue();  // at the operation or the update where a decision was awaited
  void BeginUpdate();
  void EndUpdate();
  void Copy();
  void Stand();
  void Exit();
  void Adopted(const elastic::Adopt& adopt);
  void FinishStreamWhenOthersStand(Epoch epoch, int tries);
  std::vector<elastic::CommunicatorCounter> Counters() const;
  std::vector<elastic::Position> Positions() const;
  void Moved();  // reports the positions soon
  std::optional<elastic::CutRefusal> Pledge(Epoch epoch, std::vector<Cut> cuts);
  // Goes to the pending generations of this epoch.
  void SwapAtUpdate(Epoch epoch);
  void Decide(Epoch epoch, bool go);
  // Returns false if the operation has to wait for a decision.
  bool PassCuts(const CommunicatorId& id);
  void Retire(const std::vector<elastic::GenerationId>& generations);
  // process_groups.cc
  void CreateGroup(const std::string& name);
  void MintGroups(const elastic::MakePlan& plan);
  void MoveToGroups(Epoch epoch);  // with era_ and world_ of that epoch

  Simulation* sim_;
  elastic::MemberOptions options_;
  std::unique_ptr<elastic::Member> member_;
  Time frozen_until_{};
  std::vector<std::function<void(std::vector<elastic::MemberAction>*)>> frozen_inputs_;
  Time tick_at_{};

  State state_ = State::kIdle;
  uint64_t program_token_ = 0;  // program events with an earlier token are ignored
  std::map<CommunicatorId, Communicator> communicators_;
  std::map<std::string, CommunicatorId> groups_;    // present identities, by name
  std::vector<elastic::CommunicatorBuild> builds_;  // the last ones
  Epoch era_ = 0;
  std::vector<WorldMember> world_;  // of the era
  uint32_t operations_ = 0;         // done in this step
  CommunicatorId current_{};        // communicator of the current operation
  bool updating_ = false;           // the current operation is the update's
  uint64_t begun_ = 0;
  uint64_t version_ = 0;
  uint64_t first_version_ = 0;  // in this world
  bool whole_ = true;
  bool joining_ = false;
  bool aborted_ = false;
  bool abandoned_ = false;  // its machine stopped it
  std::optional<uint64_t> pledged_step_;
  std::map<Epoch, uint64_t> swaps_;  // the updates of swaps; a swap that is not decided stops there
  std::set<Epoch> decided_;
  bool waits_at_update_ = false;
  bool switching_ = false;  // a swap is due at the present update
  std::vector<uint64_t> own_;
  std::vector<uint64_t> buddy_;
  bool copied_ = true;
  std::optional<uint64_t> received_version_;
  std::optional<Epoch> streaming_;
  Time retired_at_{};
  std::optional<Epoch> building_;  // not after a loss
  Epoch built_ = 0;                // the generations of this epoch are complete
};

}  // namespace rewire::sim
