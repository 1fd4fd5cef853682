// TCP as a program uses it without Rewire: blocking calls, a thread per connection.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/net/way.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::bench {
namespace {

bool Move(int fd, char* bytes, size_t size, bool send_them, bool spin) {
  const int flags = (spin ? MSG_DONTWAIT : 0) | MSG_NOSIGNAL;
  while (size > 0) {
    const ssize_t n = send_them ? send(fd, bytes, size, flags) : recv(fd, bytes, size, flags);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return false;
    bytes += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

class Raw final : public Way {
 public:
  Raw(const Control& control, std::vector<UniqueFd> fds, bool spin)
      : control_(control), fds_(std::move(fds)), spin_(spin), buffers_(fds_.size()) {}

  absl::Status Stream(size_t bytes, size_t count) override {
    std::vector<std::thread> threads;
    std::vector<char> fine(fds_.size(), 0);
    for (size_t i = 0; i < fds_.size(); ++i) {
      threads.emplace_back(
          [this, i, bytes, count, &fine] { fine[i] = Share(i, bytes, count) ? 1 : 0; });
    }
    for (std::thread& t : threads) t.join();
    for (const char f : fine) {
      if (f == 0) return absl::UnavailableError("a connection broke");
    }
    char byte = 0;
    if (!Move(fds_[0].get(), &byte, 1, !control_.leads(), false)) {
      return absl::UnavailableError("a connection broke");
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<Duration>> PingPong(size_t bytes, size_t count) override {
    std::vector<char> buffer(bytes);
    std::vector<Duration> took(count);
    for (Duration& one : took) {
      const Time begin = Now();
      for (const bool mine : {control_.leads(), !control_.leads()}) {
        if (!Move(fds_[0].get(), buffer.data(), bytes, mine, spin_)) {
          return absl::UnavailableError("a connection broke");
        }
      }
      one = Now() - begin;
    }
    return took;
  }

 private:
  // Moves this connection's share of the messages.
  bool Share(size_t i, size_t bytes, size_t count) {
    buffers_[i].resize(bytes * kDepth);
    for (size_t m = i; m < count; m += fds_.size()) {
      char* at = buffers_[i].data() + bytes * (m / fds_.size() % kDepth);
      if (!Move(fds_[i].get(), at, bytes, control_.leads(), false)) return false;
    }
    return true;
  }

  const Control control_;
  const std::vector<UniqueFd> fds_;
  const bool spin_;
  std::vector<std::vector<char>> buffers_;
};

absl::Status Failed(const char* call) {
  return absl::UnavailableError(absl::StrCat(call, ": ", strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Way>> RawTcp(const Control& control, const RawTcpOptions& o) {
  std::vector<UniqueFd> fds;
  sockaddr_in address{};
  socklen_t length = sizeof address;
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (control.leads()) {
    control.Receive(&address, sizeof address);
  } else {
    if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        listen(listener.get(), 64) != 0) {
      return Failed("listen");
    }
    getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length);
    control.Send(&address, sizeof address);
  }
  for (int i = 0; i < o.streams; ++i) {
    UniqueFd fd(control.leads() ? socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)
                                : accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (control.leads() && connect(fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) {
      return Failed("connect");
    }
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (o.send_buffer > 0) {
      setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &o.send_buffer, sizeof o.send_buffer);
    }
    fds.push_back(std::move(fd));
  }
  return std::make_unique<Raw>(control, std::move(fds), o.spin);
}

}  // namespace rewire::bench
