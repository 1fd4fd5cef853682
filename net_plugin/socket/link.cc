#include "net_plugin/socket/link.h"

#include <sys/socket.h>

#include <cerrno>

#include "net_plugin/socket/hello.h"

namespace rewire::net {

Rest RestOf(const Link& link) {
  char bytes[kRestedBytes];
  for (const Stream& s : link.streams) {
    const ssize_t n = recv(s.fd(), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    const bool first = &s == link.streams.data();
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (first) return Rest::kPeerNotYet;
      continue;
    }
    if (n <= 0 || !first) return Rest::kGone;
    if (n < ssize_t{kRestedBytes}) return Rest::kPeerNotYet;
    if (DecodeRested({bytes, kRestedBytes}) != link.use) return Rest::kGone;
  }
  return Rest::kBoth;
}

}  // namespace rewire::net
