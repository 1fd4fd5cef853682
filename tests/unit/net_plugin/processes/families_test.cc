// The whole plugin between two processes over IPv4 and over IPv6. Each process sends and receives,
// over one communicator after the other.
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>

#include "tests/unit/net_plugin/proxy.h"

namespace rewire::net_test {
namespace {

constexpr int kUses = 3;

bool HasLoopback(int family) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return false;
  bool found = false;
  for (const ifaddrs* a = all; a != nullptr; a = a->ifa_next) {
    found = found || (std::strcmp(a->ifa_name, "lo") == 0 && a->ifa_addr != nullptr &&
                      a->ifa_addr->sa_family == family);
  }
  freeifaddrs(all);
  return found;
}

// One of the two processes.
class Side {
 public:
  Side(int peer, simnccl::Net* net) : peer_(peer), net_(net) {}

  void Use(void* context) {
    Open(context);
    if (::testing::Test::HasFailure()) return;
    for (const size_t bytes : {size_t{0}, size_t{8}, size_t{1000}, size_t{5} << 20}) Swap(bytes);
    EXPECT_EQ(net_->CloseSend(sender_), ncclSuccess);
    EXPECT_EQ(net_->CloseRecv(receiver_), ncclSuccess);
    Exchange({});  // both ends are idle
  }

 private:
  using Handle = std::array<char, simnccl::kNetHandleBytes>;

  Handle Exchange(const Handle& mine) {
    Handle theirs{};
    EXPECT_EQ(send(peer_, mine.data(), mine.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(mine.size()));
    EXPECT_EQ(recv(peer_, theirs.data(), theirs.size(), MSG_WAITALL),
              static_cast<ssize_t>(theirs.size()));
    return theirs;
  }
  void Open(void* context) {
    sender_ = receiver_ = nullptr;
    Handle mine{};
    void* listener = nullptr;
    ASSERT_EQ(net_->Listen(context, 0, mine.data(), &listener), ncclSuccess);
    Handle theirs = Exchange(mine);
    const Time deadline = Soon();
    while ((sender_ == nullptr || receiver_ == nullptr) && Now() < deadline) {
      if (sender_ == nullptr) {
        ASSERT_EQ(net_->Connect(context, 0, theirs.data(), &sender_), ncclSuccess);
      }
      if (receiver_ == nullptr) {
        ASSERT_EQ(net_->Accept(listener, &receiver_), ncclSuccess);
      }
    }
    ASSERT_TRUE(sender_ != nullptr && receiver_ != nullptr);
    ASSERT_EQ(net_->CloseListen(listener), ncclSuccess);
  }
  // Both processes send the same bytes at the same time.
  void Swap(size_t bytes) {
    std::vector<char> out = Pattern(bytes, bytes + 1);
    std::vector<char> in(bytes);
    void* send = nullptr;
    void* receive = nullptr;
    ASSERT_EQ(net_->Irecv(receiver_, in.data(), bytes, 0, nullptr, &receive), ncclSuccess);
    ASSERT_EQ(net_->Isend(sender_, out.data(), bytes, 0, nullptr, &send), ncclSuccess);
    const Time deadline = Soon();
    while ((send != nullptr || receive != nullptr) && Now() < deadline) {
      for (void** request : {&send, &receive}) {
        if (*request == nullptr) continue;
        int done = 0;
        ASSERT_EQ(net_->Test(*request, &done, nullptr), ncclSuccess);
        if (done != 0) *request = nullptr;
      }
    }
    ASSERT_TRUE(send == nullptr && receive == nullptr);
    EXPECT_TRUE(in == out) << bytes;
  }

  const int peer_;
  simnccl::Net* const net_;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
};

void RunSide(int peer, const char* family) {
  setenv("NCCL_SOCKET_FAMILY", family, 1);
  const std::shared_ptr<simnccl::Net> net = OpenPlugin(11);
  ASSERT_NE(net, nullptr);
  Side side(peer, net.get());
  for (int use = 0; use < kUses && !::testing::Test::HasFailure(); ++use) {
    void* context = nullptr;
    ASSERT_EQ(net->Init(static_cast<uint64_t>(use), 0, &context), ncclSuccess);
    side.Use(context);
    EXPECT_EQ(net->Finalize(context), ncclSuccess);
  }
  EXPECT_EQ(PluginCounters().made, 1u);
  EXPECT_EQ(PluginCounters().reused, uint64_t{kUses - 1});
}

class FamiliesTest : public ::testing::TestWithParam<std::pair<int, const char*>> {};

TEST_P(FamiliesTest, TwoProcessesExchangeMessagesOverReusedLinks) {
  const auto [family, name] = GetParam();
  if (!HasLoopback(family)) GTEST_SKIP() << "no loopback address of " << name;
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  std::array<pid_t, 2> sides{};
  for (size_t i = 0; i < 2; ++i) {
    sides[i] = fork();
    if (sides[i] != 0) continue;
    close(ends[1 - i]);
    RunSide(ends[i], name);
    fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  close(ends[0]);
  close(ends[1]);
  for (const pid_t side : sides) {
    int status = 0;
    ASSERT_EQ(waitpid(side, &status, 0), side);
    EXPECT_EQ(status, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, FamiliesTest,
                         ::testing::Values(std::pair(AF_INET, "AF_INET"),
                                           std::pair(AF_INET6, "AF_INET6")),
                         [](const auto& info) { return std::string(info.param.second + 3); });

}  // namespace
}  // namespace rewire::net_test
