// Records the events of a simulated run, and checks each event against the promises that the
// comments of the methods state. Owned by the simulation's thread.
//
// The simulator reports every write of the store, every operation on a communicator, every applied
// update, every adopted world, and every generation that is warmed, dropped or destroyed. An event
// that breaks a promise becomes a violation.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "reconfig/base/hash.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::sim {

class Ledger {
 public:
  // The store has written a record. Each epoch has at most one world; epochs never decrease.
  void Wrote(const WorldRecord& record);
  // A member has issued operation `index` of a communicator. `index` counts from the last change of
  // members, and `era` is the epoch of that change. All members of an era must issue the same index
  // on the same generation.
  void Issued(MemberId member, Epoch era, const CommunicatorId& communicator, uint64_t index,
              Epoch generation);
  // A member has applied update `version` in the world of `epoch`. A member applies an update once
  // in an epoch, and no update is skipped.
  void Applied(MemberId member, uint64_t version, Epoch epoch);
  // A member has entered a committed world with its state at `version`. All members of a world
  // enter with the same version. A planned change loses no update, and a loss at most one, or as
  // many as MayLose() says.
  // in_world: the world includes the member.
  void Adopted(MemberId member, const WorldRecord& record, elastic::TransitionKind kind,
               uint64_t version, bool in_world);
  void MayLose(uint64_t updates) { may_lose_ = updates; }
  // A member has gone to a pending generation before update `version`. All members of an era go to
  // the same generation of a communicator before the same update.
  void SwappedAtUpdate(Epoch era, const CommunicatorId& communicator, uint64_t version,
                       Epoch generation);
  // Warmed: a member has issued the warm operation on a pending generation, which all members of
  // the generation must issue. Dropped: a member has dropped a pending generation unused. No
  // generation may be both warmed and dropped.
  void Warmed(const elastic::GenerationId& generation);
  void Dropped(const elastic::GenerationId& generation);
  // Members of an era must destroy their shared generations in the same order.
  void Destroyed(MemberId member, Epoch era, const elastic::GenerationId& generation);
  void Violation(const std::string& what) { violations_.push_back(what); }
  // Adds a value to the hash of the run.
  void Log(uint64_t what, uint64_t value) { hash_ = MixWord(hash_ ^ what, value); }

  [[nodiscard]] const std::vector<std::string>& violations() const { return violations_; }
  [[nodiscard]] uint64_t hash() const { return hash_; }
  [[nodiscard]] uint64_t commits(elastic::TransitionKind kind) const;
  [[nodiscard]] uint64_t highest_version() const { return highest_version_; }

 private:
  bool LossBetween(Epoch after, Epoch up_to) const;

  std::map<Epoch, WorldRecord> worlds_;
  std::map<Epoch, elastic::TransitionKind> kinds_;
  std::map<Epoch, uint64_t> adopted_version_;
  uint64_t may_lose_ = 1;
  uint64_t revision_ = 0;
  Epoch epoch_ = 0;
  std::map<std::tuple<Epoch, CommunicatorId, uint64_t>, Epoch> issued_;
  std::map<std::tuple<Epoch, CommunicatorId, Epoch>, uint64_t> swapped_;  // values: versions
  std::set<elastic::GenerationId> warmed_;
  std::set<elastic::GenerationId> dropped_;
  std::map<Epoch, std::map<MemberId, std::vector<elastic::GenerationId>>> destroyed_;
  std::map<uint64_t, std::set<Epoch>> applied_;  // key: version
  std::set<std::tuple<uint64_t, Epoch, MemberId>> applied_by_;
  uint64_t highest_version_ = 0;          // reached by any member
  std::map<Epoch, uint64_t> highest_in_;  // reached by any member in an epoch
  std::vector<std::string> violations_;
  uint64_t hash_ = 0;
};

}  // namespace rewire::sim
