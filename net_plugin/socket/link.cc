#include "net_plugin/socket/link.h"

#include <sys/socket.h>

#include <cerrno>

namespace rewire::net {

UseEnd EndOfUse(Link* link) {
  for (Stream& s : link->streams) {
    if (&s == link->streams.data()) {
      FrameHeader header;
      const absl::StatusOr<bool> headed = s.ReadHeader(&header);
      if (!headed.ok()) return UseEnd::kGone;
      if (*headed) {
        if (link->peer_finished || header.kind != FrameKind::kFinished || header.use != link->use) {
          return UseEnd::kGone;
        }
        link->peer_finished = true;
      }
      continue;
    }
    char byte = 0;
    const ssize_t n = recv(s.fd(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) return UseEnd::kGone;
  }
  return link->peer_finished ? UseEnd::kBoth : UseEnd::kPeerNotYet;
}

}  // namespace rewire::net
