// A listener without free descriptors, and the choice of a connection to drop.
#include "reconfig/base/listening_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <vector>

#include "reconfig/base/socket.h"

namespace rewire {
namespace {

constexpr Time kStart{seconds(100)};

TEST(ListeningSocketTest, PausesWhenNoDescriptorIsLeft) {
  UniqueFd fd;
  std::string address;
  ASSERT_TRUE(ListenTcp("127.0.0.1:0", &fd, &address).ok());
  ListeningSocket listener(std::move(fd));
  UniqueFd client;
  ASSERT_TRUE(ConnectTcp(address, Now() + seconds(20), &client).ok());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{static_cast<rlim_t>(open("/dev/null", O_RDONLY | O_CLOEXEC)), before.rlim_max};
  const UniqueFd highest(static_cast<int>(none.rlim_cur));
  setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_FALSE(listener.Accept(kStart).valid());
  setrlimit(RLIMIT_NOFILE, &before);
  ASSERT_TRUE(listener.paused_until().has_value());
  PollSet paused;
  listener.Watch(kStart, &paused);
  paused.Wait();
  EXPECT_EQ(paused.Ready(listener.fd()), 0);
  // The connection has waited in the kernel.
  PollSet resumed;
  listener.Watch(*listener.paused_until(), &resumed);
  resumed.Wait();
  EXPECT_EQ(resumed.Ready(listener.fd()), POLLIN);
  EXPECT_FALSE(listener.paused_until().has_value());
  uint64_t source = 0;
  EXPECT_TRUE(listener.Accept(kStart, &source).valid());
  EXPECT_EQ(source, uint64_t{htonl(INADDR_LOOPBACK)});
  EXPECT_FALSE(listener.Accept(kStart).valid());
  EXPECT_FALSE(listener.paused_until().has_value());  // no pause if nobody connects
}

// Any user of a host may connect from any address of 127.0.0.0/8.
TEST(ListeningSocketTest, TellsNoLoopbackAddressesApart) {
  UniqueFd fd;
  std::string address;
  ASSERT_TRUE(ListenTcp("127.0.0.1:0", &fd, &address).ok());
  sockaddr_in to{};
  socklen_t size = sizeof to;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&to), &size);
  ListeningSocket listener(std::move(fd));
  for (const uint32_t from : {INADDR_LOOPBACK, INADDR_LOOPBACK + 1, INADDR_LOOPBACK + 0x10203}) {
    const UniqueFd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(from);
    ASSERT_EQ(bind(client.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
    ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
    uint64_t source = 0;
    EXPECT_TRUE(listener.Accept(kStart, &source).valid());
    EXPECT_EQ(source, uint64_t{htonl(INADDR_LOOPBACK)});
  }
}

TEST(PendingConnectionsTest, DropsOldestOfSourceWithMost) {
  std::vector<PendingConnection> all = {
      {1, kStart}, {2, kStart + seconds(2)}, {2, kStart + seconds(1)}};
  EXPECT_EQ(PendingConnectionToDrop(all), 2u);
  all.push_back({1, kStart + seconds(3)});  // equal counts: the oldest of both
  EXPECT_EQ(PendingConnectionToDrop(all), 0u);
  EXPECT_EQ(PendingConnectionToDrop(std::span(all).first(1)), 0u);
}

}  // namespace
}  // namespace rewire
