#include "reconfig/base/listening_socket.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

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

}  // namespace rewire
