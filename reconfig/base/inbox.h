// Inputs from other threads for the thread of an event loop, in the order of the posts.
//
// Any thread may post; one thread takes. That thread waits for event(), clears it, and then takes:
// an input that is posted after the take sets the event again.
#pragma once

#include <utility>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/base/wake_event.h"

namespace rewire {

template <typename Input>
class Inbox {
 public:
  // Drops the input after Close().
  void Post(Input input) REWIRE_EXCLUDES(mutex_) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      inputs_.push_back(std::move(input));
    }
    event_.Wake();
  }
  [[nodiscard]] std::vector<Input> TakeAll() REWIRE_EXCLUDES(mutex_) {
    MutexLock lock(&mutex_);
    return std::exchange(inputs_, {});
  }
  // Drops all inputs, so that none runs after its objects are gone.
  void Close() REWIRE_EXCLUDES(mutex_) {
    std::vector<Input> dropped;
    MutexLock lock(&mutex_);
    closed_ = true;
    dropped.swap(inputs_);
  }
  [[nodiscard]] WakeEvent& event() { return event_; }

 private:
  WakeEvent event_;
  Mutex mutex_;
  bool closed_ REWIRE_GUARDED_BY(mutex_) = false;
  std::vector<Input> inputs_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire
