#include "bench/net/control.h"

#include <sys/socket.h>

#include <cstdlib>

namespace rewire::bench {

void Control::Send(const void* bytes, size_t size) const {
  if (send(fd_, bytes, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) exit(1);
}

void Control::Receive(void* bytes, size_t size) const {
  if (recv(fd_, bytes, size, MSG_WAITALL) != static_cast<ssize_t>(size)) exit(1);
}

void Control::Meet() const {
  char byte = 0;
  Send(&byte, 1);
  Receive(&byte, 1);
}

}  // namespace rewire::bench
