// A listening socket in an event loop, and the choice of the connection that a listener at its
// limit drops. If the process has no free descriptor, accept(2) fails and leaves the socket ready;
// the socket then pauses, so that the loop does not spin. No call blocks. ListeningSocket is
// thread-compatible. This file uses libc and libstdc++ only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "reconfig/base/clock.h"
#include "reconfig/base/event_loop.h"
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

struct PendingConnection {
  uint64_t source = 0;  // identifies the source: an address or a process
  Time since{};
};

// Chooses the unauthenticated connection to drop: the oldest of the source that has most. One
// source's flood therefore drops its own connections first, and a peer that has just connected
// stays. Returns an index into `pending`, which must not be empty. Thread-safe.
[[nodiscard]] size_t PendingConnectionToDrop(std::span<const PendingConnection> pending);

}  // namespace rewire
