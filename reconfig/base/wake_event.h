// Ends the wait of an event loop from another thread. Thread-safe.
#pragma once

#include <sys/eventfd.h>

#include "reconfig/base/unique_fd.h"

namespace rewire {

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

}  // namespace rewire
