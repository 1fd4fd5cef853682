// Peers that begin the handshake and die or stop after each byte, and peers that accept and never
// answer. Each handshake times out, and nobody else waits for it.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "net_plugin/socket/address.h"
#include "net_plugin/socket/links.h"
#include "tests/unit/net_plugin/scripted_handshake.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

sockaddr_storage Loopback() {
  sockaddr_storage a{};
  auto& in = reinterpret_cast<sockaddr_in&>(a);
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

Time Soon() { return Now() + seconds(20); }

class HalfOpen : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto listener = listening_.Listen(Loopback());
    ASSERT_TRUE(listener.ok()) << listener.status();
    address_ = *listener;
    hello_ = EncodeHello(net_test::HelloTo(address_, 1, 2));  // the other stream never connects
  }
  UniqueFd Visit(size_t bytes) { return net_test::Visit(address_, hello_.substr(0, bytes)); }
  // Another peer connects to the same listener.
  bool Joins() {
    Links other{{}};
    ListenAddress to = address_;
    std::unique_ptr<Link> there;
    std::unique_ptr<Link> here;
    const Time deadline = Soon();
    while ((there == nullptr || here == nullptr) && Now() < deadline) {
      if (there == nullptr) there = *other.Connect(Loopback(), 2, &to);
      if (here == nullptr) here = *listening_.Accept(address_.listener);
    }
    return there != nullptr && here != nullptr;
  }
  // Waits until the listener has closed the connection.
  bool IsClosed(const UniqueFd& fd) {
    const Time deadline = Soon();
    char bytes[64];
    while (Now() < deadline) {
      EXPECT_TRUE(listening_.Accept(address_.listener).ok());
      const ssize_t n = recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (n == 0 || (n < 0 && errno == ECONNRESET)) return true;
    }
    return false;
  }
  bool CountsUnauthenticated(uint64_t count) {
    const Time deadline = Soon();
    while (listening_.counters().unauthenticated.load() < count && Now() < deadline) {
      EXPECT_TRUE(listening_.Accept(address_.listener).ok());
    }
    return listening_.counters().unauthenticated.load() == count;
  }

  Links listening_{{{}, milliseconds(300), milliseconds(300)}};
  ListenAddress address_;
  std::string hello_;
};

TEST_F(HalfOpen, DropsPeerThatStopsAfterAnyByte) {
  std::vector<UniqueFd> connections;
  for (size_t bytes = 0; bytes <= kHelloBytes; ++bytes) connections.push_back(Visit(bytes));
  EXPECT_TRUE(Joins());
  for (const UniqueFd& connection : connections) EXPECT_TRUE(IsClosed(connection));
  EXPECT_EQ(listening_.counters().unauthenticated.load(), connections.size());
  EXPECT_TRUE(Joins());
}

TEST_F(HalfOpen, DropsPeerThatDiesAfterAnyByte) {
  for (size_t bytes = 0; bytes < kHelloBytes; ++bytes) Visit(bytes).reset();
  EXPECT_TRUE(Joins());
  EXPECT_TRUE(CountsUnauthenticated(kHelloBytes));
  EXPECT_TRUE(Joins());
}

TEST(HalfOpenListener, ConnectTimesOutWithoutAnswer) {
  const UniqueFd silent(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));  // never accepts
  Links other{{}};
  Links connecting({{}, seconds(5), seconds(20), milliseconds(300)});
  ListenAddress there;
  there.address = Loopback();
  socklen_t size = sizeof(sockaddr_in);
  ASSERT_EQ(bind(silent.get(), reinterpret_cast<sockaddr*>(&there.address), size), 0);
  ASSERT_EQ(listen(silent.get(), 8), 0);
  getsockname(silent.get(), reinterpret_cast<sockaddr*>(&there.address), &size);
  absl::StatusOr<ListenAddress> nowhere = there;
  absl::StatusOr<ListenAddress> somewhere = other.Listen(Loopback());
  absl::Status status;
  std::unique_ptr<Link> link;
  const Time deadline = Soon();
  while ((status.ok() || link == nullptr) && Now() < deadline) {
    if (status.ok()) status = connecting.Connect(Loopback(), 1, &*nowhere).status();
    if (link == nullptr) link = *connecting.Connect(Loopback(), 1, &*somewhere);
    ASSERT_TRUE(other.Accept(somewhere->listener).ok());
  }
  EXPECT_NE(link, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not answer"));
}

}  // namespace
}  // namespace rewire::net
