// A listening socket in an event loop. If the process has no free descriptor, accept(2) fails and
// leaves the socket ready; this class then pauses, so that the loop does not spin. No call blocks.
// Thread-compatible. This file uses libc and libstdc++ only.
#pragma once

#include <cstdint>
#include <optional>

#include "reconfig/base/clock.h"
#include "reconfig/base/poll_set.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class ListeningSocket {
 public:
  ListeningSocket() = default;
  explicit ListeningSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Returns the next connection, non-blocking and close-on-exec; not valid: none waits now.
  // `source` tells remote hosts apart: an IPv4 address, or the first half of an IPv6 address. All
  // processes of this host that connect over loopback have the same `source`.
  UniqueFd Accept(Time now, uint64_t* source = nullptr);

  // Set: the last Accept() had no descriptor.
  [[nodiscard]] std::optional<Time> paused_until() const { return paused_until_; }
  // Ends the pause, after a descriptor was freed or the pause's time has passed.
  void Resume() { paused_until_.reset(); }

  // Adds the socket; during a pause, the end of the pause. Ends a pause that is over.
  void Watch(Time now, PollSet* turn);

 private:
  UniqueFd fd_;
  std::optional<Time> paused_until_;
};

}  // namespace rewire
