// The parts that all event loops of the product share: what one turn waits for, the wake-up from
// another thread, and inputs from other threads. Each part of a loop adds what it waits for to a
// new PollSet, the loop waits, and each part asks for its descriptors.
//
// Each class states its threads. This file uses libc and libstdc++ only.
#pragma once

#include <poll.h>
#include <sys/eventfd.h>

#include <optional>
#include <utility>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

// The descriptors and the time that one turn waits for. Thread-compatible.
class PollSet {
 public:
  // Adds a descriptor once, with POLLIN, POLLOUT or both. A negative descriptor is left out.
  void Add(int fd, int events);
  // Ends the wait at `when`; the earliest time counts. Without a time the wait has no end.
  void Until(Time when);
  void Until(std::optional<Time> when) {
    if (when) Until(*when);
  }

  // Waits for the first descriptor or for the time. A signal ends the wait with nothing ready, so
  // the loop makes another turn.
  void Wait();

  // Returns what poll(2) reported; 0: nothing. A part that opens a descriptor during the turn may
  // get the number of a closed one, and its events with it, so its sockets must not block.
  [[nodiscard]] int Ready(int fd) const;

 private:
  std::vector<pollfd> polls_;  // after Wait(): the ready ones, by descriptor
  std::optional<Time> until_;
};

// Ends the wait of an event loop from another thread. Thread-safe.
class WakeEvent {
 public:
  // False: the process had no descriptor.
  [[nodiscard]] bool valid() const { return fd_.valid(); }
  // Is readable from Wake() until Clear().
  [[nodiscard]] int fd() const { return fd_.get(); }
  // The write fails only on a full counter, which also wakes.
  void Wake() { eventfd_write(fd_.get(), 1); }
  void Clear() {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
  }

 private:
  const UniqueFd fd_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
};

// Inputs from other threads for the thread of an event loop, in the order of the posts.
//
// Any thread may post; one thread takes. That thread waits for event(), clears it, and then takes:
// an input that is posted after the take sets the event again.
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
