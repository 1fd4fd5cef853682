// The silence of members, measured against one another: time counts only while some member of the
// world speaks. A stall of the whole host is therefore nobody's silence. Pure; thread-compatible:
// owned by Leader, whose running time all calls carry.
#pragma once

#include <map>
#include <optional>

#include "reconfig/base/clock.h"
#include "reconfig/world/world.h"

namespace rewire::elastic {

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
  // Returns the time since the member was last heard.
  [[nodiscard]] Duration Since(Time now, MemberId member) const;
  // Returns whether all members of the world have been silent for too long.
  [[nodiscard]] bool OfAll(Time now) const { return now - spoke_ >= longest_; }

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

}  // namespace rewire::elastic
