// The core over sockets, as an ordinary job without settings gets it: which address it listens on,
// what it says about it, and that it measures whether several connections are faster.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <memory>
#include <string>

#include "net_plugin/plugin/net.h"
#include "net_plugin/socket/address.h"
#include "net_plugin/socket/socket_sender.h"
#include "reconfig/base/unique_fd.h"
#include "tests/unit/net_plugin/hang_guard.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

// A test that exceeds this time hangs.

std::string* logged = nullptr;

void Log(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  *logged += text;
}

class NetOnSocketsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    unsetenv("NCCL_SOCKET_IFNAME");
    const absl::StatusOr<Net*> net = Net::Get();
    ASSERT_TRUE(net.ok()) << net.status();
    net_ = *net;
  }
  Net* net_ = nullptr;
};

// A socket of all addresses would accept a connection to any address of the host.
TEST_F(NetOnSocketsTest, ListensOnTheChosenAddressAlone) {
  char handle[kHandleBytes];
  const auto listener = net_->Listen(0, handle);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto decoded = DecodeAddress(handle);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  if (decoded->address.ss_family != AF_INET) GTEST_SKIP() << "the interface has only IPv6";
  sockaddr_in other = reinterpret_cast<const sockaddr_in&>(decoded->address);
  ASSERT_NE(other.sin_addr.s_addr, htonl(INADDR_ANY));
  const auto connects = [](const sockaddr_in& to) {
    const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    return connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  };
  EXPECT_TRUE(connects(other));
  ASSERT_EQ(inet_pton(AF_INET, "127.77.0.1", &other.sin_addr), 1);
  EXPECT_FALSE(connects(other));
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(NetOnSocketsTest, SaysWhichInterfaceAndWhy) {
  std::string text;
  logged = &text;
  net_->LogStart(11, &Log);
  EXPECT_THAT(text, HasSubstr("sockets over "));
  EXPECT_THAT(text, HasSubstr("chosen as NCCL does because NCCL_SOCKET_IFNAME is not set"));
}

TEST_F(NetOnSocketsTest, MeasuresWhetherToSplit) {
  char handle[kHandleBytes];
  const auto listener = net_->Listen(0, handle);
  ASSERT_TRUE(listener.ok()) << listener.status();
  std::unique_ptr<Sender> sender;
  std::unique_ptr<Receiver> receiver;
  for (const Time deadline = Now() + kHangGuard; sender == nullptr && Now() < deadline;) {
    auto made = net_->Connect(0, handle);
    ASSERT_TRUE(made.ok()) << made.status();
    sender = *std::move(made);
    auto accepted = (*listener)->Accept();
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    if (*accepted != nullptr) receiver = *std::move(accepted);
  }
  const auto* const socket_sender = dynamic_cast<SocketSender*>(sender.get());
  ASSERT_NE(socket_sender, nullptr);
  EXPECT_EQ(socket_sender->splitting(), Splitting::kMeasured);
}

}  // namespace
}  // namespace rewire::net
