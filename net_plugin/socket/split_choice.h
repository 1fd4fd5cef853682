// Decides from measurements whether messages are split over the streams of a link. Splitting uses
// several connections and processors. If the processors are the bottleneck, splitting gains
// nothing, because the threads for the further streams only take turns with NCCL's thread.
//
// Both ways are tried for each size of message. Splitting is chosen if it saves a fifth of the
// time, because splitting costs more processor time. The next trial of the other way starts after
// 32 times the duration of the last trial. Pure and thread-compatible.
#pragma once

#include <array>
#include <cstddef>

#include "reconfig/base/clock.h"

namespace rewire::net {

class SplitChoice {
 public:
  // Number of messages in a trial. The first does not count: earlier messages are in flight.
  static constexpr size_t kTrial = 8;

  // Tells whether to split the next message, which has `bytes` bytes.
  bool Next(size_t bytes);
  // Records the time from when the message was the oldest one until its end.
  void Add(size_t bytes, bool split, Duration took);

 private:
  // The latest times of one way, in nanoseconds per byte.
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
  // Messages of about the same size.
  struct Kind {
    bool split = false;   // the chosen way
    Times chosen;         // of the chosen way
    Times other;          // of the last trial
    size_t to_try = 0;    // messages of the trial that have not begun
    size_t to_come = 0;   // messages of the trial that have not ended
    Duration trial = {};  // the trial's duration so far
    Duration until_trial = {};
  };

  static void Decide(Kind* kind);
  [[nodiscard]] Kind& KindOf(size_t bytes);

  std::array<Kind, 10> kinds_;  // by powers of two, from 128 KiB on
};

}  // namespace rewire::net
