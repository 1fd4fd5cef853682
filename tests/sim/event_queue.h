// The simulator's clock: events in order of time; events of the same time in the order of
// insertion.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "reconfig/base/clock.h"

namespace rewire::sim {

class EventQueue {
 public:
  [[nodiscard]] Time now() const { return now_; }
  void At(Time time, std::function<void()> event) {
    events_.emplace(std::pair(std::max(time, now_), ++added_), std::move(event));
  }
  void After(Duration delay, std::function<void()> event) { At(now_ + delay, std::move(event)); }
  // Runs the next event if it is before `end`. Otherwise advances to `end` and returns false.
  bool RunOne(Time end) {
    if (events_.empty() || events_.begin()->first.first > end) {
      now_ = end;
      return false;
    }
    auto node = events_.extract(events_.begin());
    now_ = node.key().first;
    node.mapped()();
    return true;
  }

 private:
  Time now_ = Time{} + seconds(1000);
  uint64_t added_ = 0;
  std::map<std::pair<Time, uint64_t>, std::function<void()>> events_;
};

}  // namespace rewire::sim
