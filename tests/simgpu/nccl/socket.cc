#include "tests/simgpu/nccl/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "tests/simgpu/nccl/abort.h"
#include "tests/simgpu/nccl/env.h"
#include "tests/simgpu/nccl/error.h"

namespace simnccl {
namespace {

// Returns whether `list`, a value of NCCL_SOCKET_IFNAME, selects the interface `name`.
bool Wanted(const std::string& name, std::string list) {
  const bool exclude = !list.empty() && list[0] == '^';
  if (exclude) list.erase(0, 1);
  const bool exact = !list.empty() && list[0] == '=';
  if (exact) list.erase(0, 1);
  bool found = false;
  for (size_t start = 0; start <= list.size();) {
    const size_t comma = std::min(list.find(',', start), list.size());
    const std::string item = list.substr(start, comma - start);
    if (!item.empty() && (exact ? name == item : name.compare(0, item.size(), item) == 0)) {
      found = true;
    }
    start = comma + 1;
  }
  return found != exclude;
}

}  // namespace

ncclResult_t Patience::Check(const char* what) const {
  if (abort != nullptr && abort->IsSet()) {
    return Fail(ncclInternalError, "aborted while waiting: %s", what);
  }
  if (rewire::Now() >= deadline) return Fail(ncclSystemError, "timed out: %s", what);
  return ncclSuccess;
}

int Patience::PollMs(int cap) const {
  const auto left = std::chrono::duration_cast<rewire::milliseconds>(deadline - rewire::Now());
  return static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, cap));
}

ncclResult_t InterfaceAddress(sockaddr_in* address) {
  const std::string wanted = EnvText("NCCL_SOCKET_IFNAME", "=lo");
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    return Fail(ncclSystemError, "getifaddrs: %s", std::strerror(errno));
  }
  bool found = false;
  for (const ifaddrs* i = list; i != nullptr && !found; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || i->ifa_addr->sa_family != AF_INET) continue;
    if ((i->ifa_flags & IFF_UP) == 0 || !Wanted(i->ifa_name, wanted)) continue;
    std::memcpy(address, i->ifa_addr, sizeof(*address));
    found = true;
  }
  ::freeifaddrs(list);
  if (found) return ncclSuccess;
  return Fail(ncclInvalidUsage, "no interface matches NCCL_SOCKET_IFNAME=%s", wanted.c_str());
}

ncclResult_t ListenAt(rewire::UniqueFd* fd, sockaddr_in* address) {
  SIMNCCL_TRY(InterfaceAddress(address));
  address->sin_port = 0;
  rewire::UniqueFd s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  socklen_t length = sizeof(*address);
  if (!s.valid() || ::bind(s.get(), reinterpret_cast<sockaddr*>(address), length) != 0 ||
      ::listen(s.get(), 1024) != 0 ||
      ::getsockname(s.get(), reinterpret_cast<sockaddr*>(address), &length) != 0) {
    return Fail(ncclSystemError, "open a listening socket: %s", std::strerror(errno));
  }
  *fd = std::move(s);
  return ncclSuccess;
}

void SetNoDelay(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

ncclResult_t WaitFor(int fd, short events, const Patience& patience, const char* what) {
  for (;;) {
    SIMNCCL_TRY(patience.Check(what));
    pollfd fds[2] = {{fd, events, 0},
                     {patience.abort != nullptr ? patience.abort->fd() : -1, POLLIN, 0}};
    const int ready = ::poll(fds, 2, patience.PollMs());
    if (ready < 0 && errno != EINTR) {
      return Fail(ncclSystemError, "poll: %s", std::strerror(errno));
    }
    if (ready > 0 && fds[0].revents != 0) return ncclSuccess;
  }
}

ncclResult_t ConnectTo(const sockaddr_in& address, const Patience& patience, rewire::UniqueFd* fd) {
  rewire::UniqueFd s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!s.valid()) return Fail(ncclSystemError, "socket: %s", std::strerror(errno));
  int error = 0;
  if (::connect(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno != EINPROGRESS) {
      error = errno;
    } else {
      SIMNCCL_TRY(WaitFor(s.get(), POLLOUT, patience, "connecting to a peer"));
      socklen_t length = sizeof(error);
      ::getsockopt(s.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    }
  }
  if (error != 0) {
    // The peer listened at the address before the address was sent to this rank. A refused
    // connection therefore means that the peer has ended.
    char text[INET_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
    return Fail(ncclRemoteError, "connect to %s:%d: %s", text, ntohs(address.sin_port),
                std::strerror(error));
  }
  SetNoDelay(s.get());
  *fd = std::move(s);
  return ncclSuccess;
}

ncclResult_t SendAll(int fd, const void* data, size_t bytes, const Patience& patience) {
  const auto* p = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::send(fd, p, bytes, MSG_NOSIGNAL);
    if (n > 0) {
      p += n;
      bytes -= static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      SIMNCCL_TRY(WaitFor(fd, POLLOUT, patience, "sending to a peer"));
    } else if (errno != EINTR) {
      return Fail(ncclRemoteError, "send: %s", std::strerror(errno));
    }
  }
  return ncclSuccess;
}

ncclResult_t RecvAll(int fd, void* data, size_t bytes, const Patience& patience) {
  auto* p = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::recv(fd, p, bytes, 0);
    if (n > 0) {
      p += n;
      bytes -= static_cast<size_t>(n);
    } else if (n == 0) {
      return Fail(ncclRemoteError, "recv: the peer closed the connection");
    } else if (errno == EAGAIN) {
      SIMNCCL_TRY(WaitFor(fd, POLLIN, patience, "receiving from a peer"));
    } else if (errno != EINTR) {
      return Fail(ncclRemoteError, "recv: %s", std::strerror(errno));
    }
  }
  return ncclSuccess;
}

}  // namespace simnccl
