// The processes that the leader knows: who is connected, who is silent and who is lost. Part of the
// leader, whose running time all calls carry. Pure; thread-compatible.
//
// Silence is measured against the other members: time counts only while some member of the world
// speaks. A stall of the whole host is therefore nobody's silence.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

// The silence of each member. A class of its own, because it needs no connection.
class Silence {
 public:
  // A member speaks each `heartbeat`. A silence of `longest` is a loss (REWIRE_SILENCE_MS).
  Silence(Duration heartbeat, Duration longest);

  void Start(Time now);
  // The leader did not run until `now`: this time counts for nobody.
  void Skip(Time now) { counted_ = now; }
  void Count(Time now);
  // A member spoke. A process that is not of the world shows nothing about the others. Returns the
  // time for which all were silent before a member of the world, or 0 for a shorter gap, as an
  // overloaded host often has.
  Duration Heard(Time now, MemberId member, bool of_world);
  // The member's threads have waited for a processor: that time does not count.
  void Starved(Time now, MemberId member, Duration waited);
  void Forget(MemberId member) { voices_.erase(member); }

  // Returns the member's silence that counts.
  [[nodiscard]] Duration Of(MemberId member) const;
  [[nodiscard]] bool TooLong(MemberId member) const { return Of(member) >= longest_; }
  // Returns the earliest time at which a silence that is not too long yet may become so.
  [[nodiscard]] std::optional<Time> Due(MemberId member) const;
  // Returns the time since the member was last heard; nullopt: never by this leader.
  [[nodiscard]] std::optional<Duration> Since(Time now, MemberId member) const;
  // Returns whether all members of the world have been silent for too long.
  [[nodiscard]] bool OfAll(Time now) const { return now - spoke_ >= longest_; }
  [[nodiscard]] Duration longest() const { return longest_; }

 private:
  struct Voice {
    Time heard{};
    Duration at{};  // speaking_ when last heard, plus the time that the member was starved
  };
  [[nodiscard]] Voice VoiceOf(MemberId member) const;

  const Duration longest_;
  // A member that has just spoken shows that the host runs, until it has missed two heartbeats.
  const Duration vouches_;
  std::map<MemberId, Voice> voices_;
  Duration speaking_{};  // the time in which some member of the world spoke, up to counted_
  Time counted_{};
  Time spoke_{};  // when a member of the world was last heard
};

// One process, from its first Hello until it is forgotten.
struct Peer {
  uint64_t incarnation = 0;
  std::string data_address;
  bool connected = false;
  bool cooperates = false;
  bool finished = false;
  // It has finished, does not use the C API, and had communicators: the others may wait for it in
  // NCCL without end.
  bool awaited = false;
  bool lost = false;       // permanent: a new Hello is refused
  bool reclaimed = false;  // the member has a reclaim notice
  bool welcome_due = false;
  bool visitor = false;        // in no known world: is told of the record and dismissed
  bool broken = false;         // reports that its generations are aborted, as of hello_epoch
  Epoch hello_epoch = 0;       // the member's epoch when it connected
  uint32_t positions_due = 0;  // reports that its Hello announced and that have not arrived yet
  Heartbeat counts;
  bool told_starved = false;
  bool told_finished = false;

  // Returns whether the process counts when silence is looked at.
  [[nodiscard]] bool Watched() const { return connected && !finished && !lost; }
};

class Peers {
 public:
  Peers(Duration heartbeat, Duration silence) : silence_(heartbeat, silence) {}

  // ---- one process
  [[nodiscard]] const std::map<MemberId, Peer>& all() const { return peers_; }
  // Returns nullptr for an unknown process.
  [[nodiscard]] Peer* Find(MemberId member);
  [[nodiscard]] const Peer* Find(MemberId member) const;
  // Returns the process, which becomes known.
  Peer& Know(MemberId member) { return peers_[member]; }
  // Forgets everything but a loss.
  void Forget(MemberId member);
  [[nodiscard]] bool Finished(MemberId member) const;
  // Returns whether the process is connected and was informed of its world.
  [[nodiscard]] bool Told(MemberId member) const;

  // ---- members of a world
  // Returns those of `members` that are known and neither lost nor finished.
  [[nodiscard]] std::vector<MemberId> Alive(std::vector<MemberId> members) const;
  // Returns those of `members` that are not lost and neither connected nor finished.
  [[nodiscard]] std::vector<MemberId> Missing(std::vector<MemberId> members) const;
  // Returns whether the known members that are not lost use the C API.
  [[nodiscard]] bool Cooperate(const std::vector<MemberId>& members) const;
  [[nodiscard]] bool Reclaimed(const std::vector<MemberId>& members) const;

  // ---- losses
  // Marks the process as permanently lost. of_world: it is a member of the committed world, and the
  // next transition is a loss. Returns whether the process was connected.
  bool Lose(MemberId member, bool of_world);
  // Returns the lost members of the stored world.
  [[nodiscard]] const std::set<MemberId>& lost() const { return lost_; }
  // After a commit: forgets losses of members that are not in the new world.
  void KeepLost(const std::vector<MemberId>& world);

  // ---- silence
  void Start(Time now) { silence_.Start(now); }
  void Skip(Time now) { silence_.Skip(now); }
  void Count(Time now) { silence_.Count(now); }
  // As Silence::Heard.
  Duration Heard(Time now, MemberId member, bool of_world);
  // Returns true for the first report since the member was last heard.
  bool Starved(Time now, MemberId member, Duration waited);
  // Returns connected members whose counted silence has lasted for a quarter of the longest.
  [[nodiscard]] std::vector<MemberId> Quiet() const;
  // Returns connected members whose silence is too long. raw: all time counts, also that in which
  // no member spoke (a planted bug).
  [[nodiscard]] std::vector<MemberId> TooSilent(Time now, bool raw) const;
  // Returns awaited members whose silence is too long: others have gone on without them.
  [[nodiscard]] std::vector<MemberId> AwaitedTooLong() const;
  [[nodiscard]] bool AllSilent(Time now) const { return silence_.OfAll(now); }
  // Returns AllSilent() once, until a member of the world is heard again.
  bool NewlyAllSilent(Time now);
  // Returns once whether others have gone on for long after a cooperating member had finished.
  bool NewlyFinishedLong(MemberId member);
  [[nodiscard]] std::optional<Duration> SilentFor(Time now, MemberId member) const {
    return silence_.Since(now, member);
  }
  // Returns the earliest time at which a connected or awaited member may have been silent for too
  // long; nullopt: never, or now.
  [[nodiscard]] std::optional<Time> NextDue() const;

 private:
  std::map<MemberId, Peer> peers_;
  std::set<MemberId> lost_;
  Silence silence_;
  bool told_all_silent_ = false;
};

}  // namespace rewire::elastic
