// A listening socket in an event loop. accept(2) leaves the socket ready when the process has no
// descriptor to accept with; this class then pauses, so that the loop does not spin. Non-blocking;
// thread-compatible. libc and libstdc++ only.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire {

class ListeningSocket {
 public:
  ListeningSocket() = default;
  explicit ListeningSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  [[nodiscard]] bool valid() const { return fd_.valid(); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // The next connection, non-blocking and close-on-exec; not valid: there is none now.
  // `source` tells remote hosts apart: an IPv4 address, or the first half of an IPv6 address. It is
  // the same for all processes of this host that connect over loopback.
  UniqueFd Accept(Time now, uint64_t* source = nullptr);

  // No descriptor was left at the last Accept(): the socket is not to be waited for until then.
  [[nodiscard]] std::optional<Time> paused_until() const { return paused_until_; }
  // A descriptor was freed, or the pause is over.
  void Resume() { paused_until_.reset(); }

  // The entry for poll(2); without events during a pause, which it ends when its time has come.
  [[nodiscard]] pollfd Poll(Time now);

 private:
  UniqueFd fd_;
  std::optional<Time> paused_until_;
};

}  // namespace rewire
