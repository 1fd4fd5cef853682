// The project's time: the monotonic clock. Pure state machines never read a clock; the caller
// passes a Time, so that the simulator can pass its own. Thread-safe.
#pragma once

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

}  // namespace rewire
