#include "reconfig/base/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace rewire {
namespace {

SocketStatus Failed(const std::string& what, int error) {
  const bool gone = error == ECONNRESET || error == EPIPE;
  return {gone ? SocketCode::kClosed : SocketCode::kFailed, what + ": " + strerror(error)};
}

SocketStatus UnixAddress(const std::string& path, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof out->sun_path) {
    return {SocketCode::kFailed, "socket path '" + path + "' must have 1 to " +
                                     std::to_string(sizeof out->sun_path - 1) + " bytes"};
  }
  memcpy(out->sun_path, path.c_str(), path.size() + 1);
  return {};
}

SocketStatus TcpAddress(const std::string& address, sockaddr_in* out) {
  *out = {};
  out->sin_family = AF_INET;
  const size_t colon = address.rfind(':');
  unsigned port = 0;
  bool good = colon != std::string::npos;
  if (good) {
    const char* end = address.data() + address.size();
    const auto parsed = std::from_chars(address.data() + colon + 1, end, port);
    good = parsed.ec == std::errc() && parsed.ptr == end && port <= 65535 &&
           inet_pton(AF_INET, address.substr(0, colon).c_str(), &out->sin_addr) == 1;
  }
  if (!good) {
    return {SocketCode::kFailed, "address '" + address + "': must have the form 127.0.0.1:PORT"};
  }
  out->sin_port = htons(static_cast<uint16_t>(port));
  return {};
}

// Connects a non-blocking fd, and waits until the connection is complete.
SocketStatus Connect(int fd, const sockaddr* address, socklen_t size, const std::string& name,
                     Time deadline) {
  for (;;) {
    if (connect(fd, address, size) == 0) return {};
    if (errno == EINTR) continue;
    // The Unix listener's queue is full: the listener is alive but has not accepted yet.
    if (errno == EAGAIN) {
      if (Now() >= deadline) return {SocketCode::kTimeout, "connect to " + name + ": timed out"};
      poll(nullptr, 0, 1);
      continue;
    }
    break;
  }
  if (errno != EINPROGRESS) return Failed("connect to " + name, errno);
  if (!WaitReady(fd, POLLOUT, deadline)) {
    return {SocketCode::kTimeout, "connect to " + name + ": timed out"};
  }
  int error = 0;
  socklen_t length = sizeof error;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  return error == 0 ? SocketStatus{} : Failed("connect to " + name, error);
}

bool IsTrusted(uid_t user) { return user == geteuid() || user == 0; }

SocketStatus Foreign(const std::string& path, const std::string& what, uid_t user) {
  return {SocketCode::kForeign, "socket " + path + ": " + what + " belongs to user " +
                                    std::to_string(user) + " (must be this user, " +
                                    std::to_string(geteuid()) + ", or root)"};
}

// The owner of a folder can replace every socket in it.
SocketStatus CheckFolder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const UniqueFd fd(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat st {};
  if (!fd.valid() || fstat(fd.get(), &st) != 0) return Failed("socket " + path, errno);
  return IsTrusted(st.st_uid) ? SocketStatus{} : Foreign(path, "the folder", st.st_uid);
}

UniqueFd MakeSocket(int domain) {
  return UniqueFd(socket(domain, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

bool WaitReady(int fd, short events, Time deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - Now()).count();
    pollfd p{fd, events, 0};
    const int n = poll(&p, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 60000)));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return true;  // the following call reports the error
    if (left <= 0) return false;
  }
}

SocketStatus ListenUnix(const std::string& path, UniqueFd* out) {
  sockaddr_un address;
  if (SocketStatus s = UnixAddress(path, &address); !s.ok()) return s;
  if (SocketStatus s = CheckFolder(path); !s.ok()) return s;
  struct stat st {};
  if (lstat(path.c_str(), &st) == 0) {
    // Replaces only a socket without a listener; any other file at this path is not Rewire's.
    const UniqueFd probe = MakeSocket(AF_UNIX);
    const int rc =
        connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (rc == 0 || errno == EAGAIN) {
      return {SocketCode::kFailed, "another process listens on " + path};
    }
    if (errno != ECONNREFUSED || !S_ISSOCK(st.st_mode)) {
      return {SocketCode::kFailed,
              "listen on " + path + ": the path exists and is not a socket of an ended process"};
    }
  }
  // The socket gets its final name after listen(), so that `path` always names a listening socket.
  const std::string fresh = path + "~" + std::to_string(getpid());
  if (SocketStatus s = UnixAddress(fresh, &address); !s.ok()) return s;
  UniqueFd fd = MakeSocket(AF_UNIX);
  if (!fd.valid()) return Failed("socket", errno);
  if (lstat(fresh.c_str(), &st) == 0 && S_ISSOCK(st.st_mode)) unlink(fresh.c_str());
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      chmod(fresh.c_str(), 0600) != 0 || listen(fd.get(), 128) != 0 ||
      rename(fresh.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(fresh.c_str());
    return Failed("listen on " + path, error);
  }
  *out = std::move(fd);
  return {};
}

SocketStatus ConnectUnix(const std::string& path, Time deadline, UniqueFd* out) {
  sockaddr_un address;
  if (SocketStatus s = UnixAddress(path, &address); !s.ok()) return s;
  if (SocketStatus s = CheckFolder(path); !s.ok()) return s;
  UniqueFd fd = MakeSocket(AF_UNIX);
  if (!fd.valid()) return Failed("socket", errno);
  SocketStatus s = Connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address,
                           path, deadline);
  PeerCredentials listener;
  if (s.ok()) s = PeerOf(fd.get(), &listener);
  if (s.ok() && !IsTrusted(listener.uid)) {
    s = Foreign(path, "process " + std::to_string(listener.pid) + ", which listens,", listener.uid);
  }
  if (s.ok()) *out = std::move(fd);
  return s;
}

SocketStatus PeerOf(int fd, PeerCredentials* out) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return Failed("read the peer's credentials", errno);
  }
  *out = {credentials.pid, credentials.uid};
  return {};
}

SocketStatus ListenTcp(const std::string& address, UniqueFd* out, std::string* bound) {
  sockaddr_in in;
  if (SocketStatus s = TcpAddress(address, &in); !s.ok()) return s;
  UniqueFd fd = MakeSocket(AF_INET);
  if (!fd.valid()) return Failed("socket", errno);
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  socklen_t length = sizeof in;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&in), &length) != 0) {
    return Failed("listen on " + address, errno);
  }
  if (bound != nullptr) {
    char text[INET_ADDRSTRLEN] = "";
    inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
    *bound = std::string(text) + ":" + std::to_string(ntohs(in.sin_port));
  }
  *out = std::move(fd);
  return {};
}

SocketStatus ConnectTcp(const std::string& address, Time deadline, UniqueFd* out) {
  sockaddr_in in;
  if (SocketStatus s = TcpAddress(address, &in); !s.ok()) return s;
  for (;;) {
    UniqueFd fd = MakeSocket(AF_INET);
    if (!fd.valid()) return Failed("socket", errno);
    const int one = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SocketStatus s = Connect(fd.get(), reinterpret_cast<const sockaddr*>(&in), sizeof in, address,
                             std::min(deadline, Now() + kConnectAttempt));
    if (s.ok()) *out = std::move(fd);
    if (s.code != SocketCode::kTimeout || Now() >= deadline) return s;
  }
}

SocketStatus Accept(int listener, Time deadline, UniqueFd* out) {
  for (;;) {
    UniqueFd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.valid()) {
      *out = std::move(fd);
      return {};
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return Failed("accept", errno);
    if (!WaitReady(listener, POLLIN, deadline))
      return {SocketCode::kTimeout, "accept: timed out: no peer connected"};
  }
}

SocketStatus SendAll(int fd, std::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!WaitReady(fd, POLLOUT, deadline)) return {SocketCode::kTimeout, "send: timed out"};
    } else if (errno != EINTR) {
      return Failed("send", errno);
    }
  }
  return {};
}

SocketStatus ReceiveAll(int fd, void* bytes, size_t size, Time deadline) {
  auto* p = static_cast<char*>(bytes);
  while (size > 0) {
    const ssize_t n = recv(fd, p, size, 0);
    if (n > 0) {
      p += n;
      size -= static_cast<size_t>(n);
    } else if (n == 0) {
      return {SocketCode::kClosed, "the peer closed the connection"};
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!WaitReady(fd, POLLIN, deadline)) return {SocketCode::kTimeout, "receive: timed out"};
    } else if (errno != EINTR) {
      return Failed("recv", errno);
    }
  }
  return {};
}

}  // namespace rewire
