// Whether messages are split over the streams of a link, by what that has brought so far. Splitting
// keeps several connections and processors busy. Where the processors are the bottleneck, threads
// that move the further streams only take turns with the one that would have moved everything.
//
// Both ways are tried, for each size of message, and the one that is faster is taken; splitting
// must save a fifth, because it costs more processor time. A trial of the other way comes again
// after 32 times as long as the last one took. Pure and thread-compatible.
#pragma once

#include <array>
#include <cstddef>

#include "reconfig/base/clock.h"

namespace rewire::net {

class SplitChoice {
 public:
  // Messages of a trial. The first one does not count: others are still on their way.
  static constexpr size_t kTrial = 8;

  // Whether the next message of so many bytes is split.
  bool Next(size_t bytes);
  // Such a message took so long since it was the oldest.
  void Add(size_t bytes, bool split, Duration took);

 private:
  // The latest times of one way, in nanoseconds a byte.
  class Times {
   public:
    void Add(double time) { times_[count_++ % times_.size()] = time; }
    void Clear() { count_ = 0; }
    [[nodiscard]] bool full() const { return count_ >= times_.size(); }
    [[nodiscard]] double Median() const;

   private:
    std::array<double, kTrial - 1> times_{};
    size_t count_ = 0;
  };
  // Messages of about one size.
  struct Kind {
    bool split = false;   // what is done
    Times chosen;         // of what is done
    Times other;          // of the last trial
    size_t to_try = 0;    // messages of a trial that have not begun
    size_t to_come = 0;   // or have not ended
    Duration trial = {};  // what these have taken
    Duration until_trial = {};
  };

  static void Decide(Kind* kind);
  [[nodiscard]] Kind& KindOf(size_t bytes);

  std::array<Kind, 10> kinds_;  // by powers of two, from 128 KiB on
};

}  // namespace rewire::net
