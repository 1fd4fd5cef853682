// The descriptors and the time that one turn of an event loop waits for. All event loops of the
// product have the same turn: each part adds what it waits for to a new set, the loop waits, and
// each part asks for its descriptors.
//
// Thread-compatible. This file uses libc and libstdc++ only.
#pragma once

#include <poll.h>

#include <optional>
#include <vector>

#include "reconfig/base/clock.h"

namespace rewire {

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

}  // namespace rewire
