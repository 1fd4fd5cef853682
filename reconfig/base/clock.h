// The project's time: the monotonic clock, and the same clock without the times in which the
// process did not run. Pure state machines never read a clock; the caller passes a Time, so that
// the simulator can pass its own. Functions are thread-safe, classes thread-compatible.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace rewire {

using Time = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

inline Time Now() { return std::chrono::steady_clock::now(); }

inline double ToMilliseconds(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

inline int64_t ToNanoseconds(Duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

// The monotonic clock without the times in which its process did not run: the process was stopped,
// the machine was suspended, or other processes had all processors.
//
// The owner reads the clock at least every step() / 2. A gap between two readings that is longer
// than a step is a stall, and counts as one step.
class RunningClock {
 public:
  explicit RunningClock(Duration step) : step_(step) {}

  // Returns the running time at `now`. `now` is the owner's time and must not decrease.
  Time Read(Time now) {
    if (last_ != Time{} && now - last_ > step_) stalled_ += now - last_ - step_;
    last_ = std::max(last_, now);
    return now - stalled_;
  }
  // Returns the running time at `now` without counting as a reading. A stall since the last reading
  // is not subtracted yet, so the result may exceed that of a later Read().
  [[nodiscard]] Time At(Time now) const { return now - stalled_; }
  // Converts a running time to the owner's time, assuming no further stall.
  [[nodiscard]] Time OwnersTime(Time running) const { return running + stalled_; }
  // The latest owner's time for the next reading.
  [[nodiscard]] Time NextReading() const { return last_ + step_ / 2; }
  [[nodiscard]] Duration step() const { return step_; }
  // The sum of all stalls.
  [[nodiscard]] Duration stalled() const { return stalled_; }

 private:
  const Duration step_;
  Time last_{};
  Duration stalled_{};
};

// A deadline for a thread that waits in short turns, in the time that its process runs:
//   for (RunningDeadline d(longest); !done;) {
//     if (d.Passed()) return false;
//     changed.WaitUntil(&mutex, d.NextTurn());
//   }
class RunningDeadline {
 public:
  explicit RunningDeadline(Duration longest) : end_(clock_.Read(Now()) + longest) {}
  [[nodiscard]] bool Passed() { return clock_.Read(Now()) >= end_; }
  [[nodiscard]] Time NextTurn() const {
    return std::min(clock_.NextReading(), clock_.OwnersTime(end_));
  }

 private:
  RunningClock clock_{milliseconds(500)};
  const Time end_;
};

}  // namespace rewire
