// Two processes' links on loopback, and what their tests do with them. Every wait has a deadline.
// Owned by the test's thread.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>
#include <string>
#include <utility>

#include "net_plugin/socket/links.h"
#include "reconfig/base/clock.h"

namespace rewire::net {

inline sockaddr_storage Loopback() {
  sockaddr_storage a{};
  auto& in = reinterpret_cast<sockaddr_in&>(a);
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

inline Time Soon() { return Now() + seconds(20); }

class TwoProcesses : public ::testing::Test {
 protected:
  using Ends = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;

  // Makes a link from `from` to a new listener of `to`.
  static absl::StatusOr<Ends> Join(Links* from, Links* to, int streams = 2) {
    absl::StatusOr<ListenAddress> address = to->Listen(Loopback());
    if (!address.ok()) return address.status();
    Ends ends;
    const Time deadline = Soon();
    while ((ends.first == nullptr || ends.second == nullptr) && Now() < deadline) {
      if (ends.first == nullptr) {
        auto link = from->Connect(Loopback(), streams, &*address);
        if (!link.ok()) {
          (void)to->Accept(address->listener);
          return link.status();
        }
        ends.first = *std::move(link);
      }
      auto link = to->Accept(address->listener);
      if (!link.ok()) return link.status();
      if (*link != nullptr) ends.second = *std::move(link);
    }
    to->Unlisten(address->listener);
    return ends;
  }
  // Returns whether `links` closes this connection; stores the bytes that it sent before.
  bool Closes(Links* links, uint64_t listener, int fd, std::string* said) {
    const Time deadline = Soon();
    while (Now() < deadline) {
      EXPECT_TRUE(links->Accept(listener).ok());
      char bytes[64];
      const ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
      if (n > 0) said->append(bytes, static_cast<size_t>(n));
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }

  Links a_{{}};
  Links b_{{}};
};

// Writes a sender's close.
inline void Close(Link* link) {
  FrameHeader close;
  close.kind = FrameKind::kClose;
  close.use = link->use;
  ASSERT_EQ(*link->streams[0].Write(&close, sizeof close, nullptr, 0), sizeof close);
}

}  // namespace rewire::net
