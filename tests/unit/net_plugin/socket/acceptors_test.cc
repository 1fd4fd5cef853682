// Unauthenticated connections to a process's listeners: peers that stop or die after each byte of
// the handshake, floods, and a process without descriptors. Nobody else waits for them.
#include "net_plugin/socket/acceptors.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "net_plugin/socket/links.h"
#include "tests/unit/net_plugin/socket/scripted_handshake.h"
#include "tests/unit/net_plugin/socket/two_processes.h"

namespace rewire::net {
namespace {

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

Duration CpuTime() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return seconds(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         microseconds(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// OpenDescriptors() counts both ends: this process also holds the attacker's connections.
TEST(FloodTest, LimitsUnauthenticatedConnectionsWithoutCalls) {
  Links listening({{}, seconds(3600)});
  const absl::StatusOr<ListenAddress> address = listening.Listen(Loopback());
  ASSERT_TRUE(address.ok());
  const size_t before = OpenDescriptors();
  std::vector<UniqueFd> attackers;
  for (int i = 0; i < 300; ++i) attackers.push_back(net_test::Visit(*address, "x"));
  const Time deadline = Now() + seconds(20);
  while (listening.counters().unauthenticated.load() < 300 - 64 && Now() < deadline) {
  }
  EXPECT_EQ(listening.counters().unauthenticated.load(), 300u - 64u);
  EXPECT_LE(OpenDescriptors(), before + attackers.size() + 64);
  // The listener dropped the oldest connections.
  EXPECT_TRUE(net_test::IsClosed(attackers.front().get()));
  EXPECT_FALSE(WaitReady(attackers.back().get(), POLLIN, Now()));
}

// The peers name a listener, get a challenge, and never send a proof.
TEST(FloodTest, DropsUnprovedConnectionsWithoutCalls) {
  constexpr size_t kConnections = 100;
  LinksOptions options;
  options.hello = seconds(3600);
  options.connect = milliseconds(100);  // the deadline of a proof
  Links listening(options);
  const absl::StatusOr<ListenAddress> address = listening.Listen(Loopback());
  ASSERT_TRUE(address.ok());
  const size_t before = OpenDescriptors();
  std::vector<UniqueFd> connections;
  for (size_t i = 0; i < kConnections; ++i) {
    connections.push_back(net_test::Visit(*address, EncodeHello(net_test::HelloTo(*address, i))));
  }
  for (const UniqueFd& fd : connections) {
    EXPECT_TRUE(DecodeChallenge(net_test::ReadBytes(fd.get(), kChallengeBytes)).ok());
    ASSERT_TRUE(net_test::IsClosed(fd.get()));
  }
  EXPECT_EQ(OpenDescriptors(), before + kConnections);  // the unauthenticated peers' own ends
  EXPECT_EQ(listening.counters().unauthenticated.load(), kConnections);
}

TEST(FloodTest, PeersConnectDuringAFlood) {
  Links listening{{}};
  Links connecting{{}};
  const absl::StatusOr<ListenAddress> address = listening.Listen(Loopback());
  ASSERT_TRUE(address.ok());
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    std::vector<UniqueFd> attackers(128);
    for (size_t i = 0; !stop; i = (i + 1) % attackers.size()) {
      attackers[i] = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      // A connection that fails is part of the flood.
      (void)connect(attackers[i].get(), reinterpret_cast<const sockaddr*>(&address->address),
                    sizeof(sockaddr_in));
    }
  });
  // The flood has begun before the peers connect.
  for (const Time by = Now() + seconds(20);
       listening.counters().unauthenticated.load() < 200 && Now() < by;) {
  }
  EXPECT_GE(listening.counters().unauthenticated.load(), 200u);
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<ListenAddress> to = listening.Listen(Loopback());
    ASSERT_TRUE(to.ok());
    std::unique_ptr<Link> there;
    std::unique_ptr<Link> here;
    const Time deadline = Now() + seconds(60);
    while ((there == nullptr || here == nullptr) && Now() < deadline) {
      if (there == nullptr) {
        auto link = connecting.Connect(Loopback(), 2, &*to);
        ASSERT_TRUE(link.ok()) << link.status();
        there = *std::move(link);
      }
      if (here == nullptr) here = *listening.Accept(to->listener);
    }
    EXPECT_TRUE(there != nullptr && here != nullptr) << i;
    listening.Unlisten(to->listener);
  }
  stop = true;
  flood.join();
}

TEST(FloodTest, DoesNotSpinWithoutDescriptors) {
  Links listening({{}, milliseconds(100)});
  const absl::StatusOr<ListenAddress> address = listening.Listen(Loopback());
  ASSERT_TRUE(address.ok());
  const UniqueFd waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{static_cast<rlim_t>(waiting.get()), limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  // The connection waits to be accepted.
  (void)connect(waiting.get(), reinterpret_cast<const sockaddr*>(&address->address),
                sizeof(sockaddr_in));
  const Time begin = Now();
  const Duration cpu = CpuTime();
  poll(nullptr, 0, 1000);  // broken workers spin meanwhile
  const double ratio = ToMilliseconds(CpuTime() - cpu) / ToMilliseconds(Now() - begin);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_LT(ratio, 0.2);
  // With descriptors, the listener accepts the connection and drops it after the hello's deadline.
  const Time deadline = Now() + seconds(20);
  while (listening.counters().unauthenticated.load() == 0 && Now() < deadline) {
  }
  EXPECT_EQ(listening.counters().unauthenticated.load(), 1u);
}

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

}  // namespace
}  // namespace rewire::net
