#include "reconfig/base/listening_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <map>

#include "reconfig/base/check.h"

namespace rewire {
namespace {

// A paused socket accepts again at most this time after the program closes a descriptor.
constexpr Duration kPause = milliseconds(100);

uint64_t SourceOf(const sockaddr_storage& from) {
  uint64_t source = 0;
  if (from.ss_family == AF_INET) {
    source = reinterpret_cast<const sockaddr_in&>(from).sin_addr.s_addr;
    // Any user of this host may connect from any address of 127.0.0.0/8.
    if (ntohl(static_cast<uint32_t>(source)) >> 24 == 127) source = htonl(INADDR_LOOPBACK);
  } else if (from.ss_family == AF_INET6) {
    std::memcpy(&source, &reinterpret_cast<const sockaddr_in6&>(from).sin6_addr, sizeof source);
  }
  return source;
}

}  // namespace

UniqueFd ListeningSocket::Accept(Time now, uint64_t* source) {
  for (;;) {
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    UniqueFd fd(accept4(fd_.get(), reinterpret_cast<sockaddr*>(&from), &size,
                        SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      if (source != nullptr) *source = SourceOf(from);
      return fd;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      paused_until_ = now + kPause;
    }
    return fd;
  }
}

void ListeningSocket::Watch(Time now, PollSet* turn) {
  if (paused_until_ && now >= *paused_until_) paused_until_.reset();
  if (paused_until_) return turn->Until(*paused_until_);
  turn->Add(fd_.get(), POLLIN);
}

size_t PendingConnectionToDrop(std::span<const PendingConnection> pending) {
  REWIRE_CHECK(!pending.empty());
  std::map<uint64_t, size_t> of_source;
  for (const PendingConnection& n : pending) ++of_source[n.source];
  size_t drop = 0;
  for (size_t i = 1; i < pending.size(); ++i) {
    const size_t mine = of_source[pending[i].source];
    const size_t best = of_source[pending[drop].source];
    if (mine > best || (mine == best && pending[i].since < pending[drop].since)) drop = i;
  }
  return drop;
}

}  // namespace rewire
