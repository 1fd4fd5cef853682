#include "net_plugin/socket/link.h"

#include <sys/socket.h>

#include <cerrno>

namespace rewire::net {

Rest RestOf(Link* link) {
  for (Stream& s : link->streams) {
    if (&s == link->streams.data()) {
      FrameHeader header;
      const absl::StatusOr<bool> headed = s.ReadHeader(&header);
      if (!headed.ok()) return Rest::kGone;
      if (*headed) {
        if (link->rested || header.kind != FrameKind::kRest || header.use != link->use) {
          return Rest::kGone;
        }
        link->rested = true;
      }
      continue;
    }
    char byte = 0;
    const ssize_t n = recv(s.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return Rest::kGone;
  }
  return link->rested ? Rest::kBoth : Rest::kPeerNotYet;
}

}  // namespace rewire::net
