// The current attempt: the leader's data about one transition. Part of the leader.
//
// Pure values and small pure functions; the leader's inputs change the values. Thread-compatible.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/auth/key.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/clock.h"
#include "reconfig/elastic/leader/cut_rounds.h"
#include "reconfig/elastic/leader/group_ids.h"
#include "reconfig/elastic/leader/leader_action.h"

namespace rewire::elastic {

// Derives the key of an epoch, one way: the key reveals neither the job's key nor another epoch's.
inline Key EpochKey(const Key& job, Epoch epoch) {
  ByteWriter context;
  context.Put(epoch);
  return DeriveKey(job, "rewire epoch", context.bytes());
}

// Derives the key with which the members of a job ask each other for names.
inline Key NamesKey(const Key& job) { return DeriveKey(job, "rewire names", ""); }

struct Transition {
  uint64_t attempt = 0;
  TransitionKind kind = TransitionKind::kSwap;
  Epoch epoch = 0;  // epoch of the target
  Key secret;
  World from;
  std::vector<MemberId> target;   // in slot order
  std::vector<MemberId> olds;     // living members of the stored world, including those that leave
  std::vector<MemberId> joiners;  // in the target, not in the stored world
  MemberId next_member = 0;       // to be stored with the reservation
  std::vector<uint64_t> requests;
  std::string what;  // "resize to 4": for notes
  uint32_t restarts = 0;
  uint32_t failed_builds = 0;  // failed builds that led to a restart

  Phase phase = Phase::kReserve;
  Time began{};
  Time phase_began{};
  std::optional<Time> deadline;
  bool reserved = false;
  std::optional<Time> not_before;  // RESERVE does not end earlier; nullopt: that time has passed
  std::string waits;               // RESERVE's last reported reason to wait

  World to;  // complete (addresses) from kPrepare on
  std::set<CommunicatorId> to_mint;
  std::map<CommunicatorId, UniqueIdBytes> minted;
  GroupIds groups;  // unless it is a swap, in which a group communicator is as any other
  bool build_sent = false;
  std::set<MemberId> prepared;
  std::map<uint64_t, std::vector<MemberId>> plans;  // the members by the hash of their plan

  CutRounds rounds;

  std::map<MemberId, AtBoundary> at_boundary;
  bool restoring = false;  // Restore was sent
  std::set<MemberId> verified;
  uint64_t bytes_moved = 0;
  std::set<MemberId> entered;
  uint64_t pause_ns = 0;  // the longest pause

  [[nodiscard]] std::vector<MemberId> Everyone() const {
    std::vector<MemberId> all = olds;
    all.insert(all.end(), joiners.begin(), joiners.end());
    return all;
  }
  // Returns the members that stand at the boundary.
  [[nodiscard]] std::set<MemberId> AtTheBoundary() const {
    std::set<MemberId> members;
    for (const auto& [member, report] : at_boundary) members.insert(member);
    return members;
  }
  [[nodiscard]] bool IsOld(MemberId m) const {
    return std::find(olds.begin(), olds.end(), m) != olds.end();
  }
  [[nodiscard]] bool IsJoiner(MemberId m) const {
    return std::find(joiners.begin(), joiners.end(), m) != joiners.end();
  }
  [[nodiscard]] bool InTarget(MemberId m) const {
    return std::find(target.begin(), target.end(), m) != target.end();
  }
  // Returns why the members' plans are not the same: those with other plans than most; empty: they
  // are.
  [[nodiscard]] std::string OtherPlans() const;
  [[nodiscard]] bool Planned() const { return kind != TransitionKind::kLoss; }
  // Returns whether a deadline that passes now may cost members or the job.
  [[nodiscard]] bool CostsMembers() const {
    return phase == Phase::kCommitted || (!Planned() && BeforeCommit());
  }
  [[nodiscard]] bool BeforeCommit() const { return phase < Phase::kCommitting; }
  [[nodiscard]] static bool All(const std::set<MemberId>& set, const std::vector<MemberId>& of) {
    return std::all_of(of.begin(), of.end(), [&](MemberId m) { return set.contains(m); });
  }
};

}  // namespace rewire::elastic
