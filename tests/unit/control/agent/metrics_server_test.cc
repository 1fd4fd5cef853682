// Tests slow clients of the metrics server. The agent's clock is stopped, so no deadline passes.
#include "reconfig/control/agent/metrics_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "reconfig/base/socket.h"

namespace rewire::control {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::StartsWith;

// A test that takes longer than this hangs.
constexpr Duration kHangGuard = seconds(30);

class MetricsServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto server = MetricsServer::Listen("127.0.0.1:0");
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  UniqueFd Connected(const std::string& said) {
    UniqueFd fd;
    const std::string address = "127.0.0.1:" + std::to_string(server_->port());
    EXPECT_TRUE(ConnectTcp(address, Now() + kHangGuard, &fd).ok());
    EXPECT_TRUE(SendAll(fd.get(), said, Now() + kHangGuard).ok());
    return fd;
  }
  // Runs one turn of the agent's event loop.
  void Turn() {
    PollSet turn;
    server_->Watch(now_, &turn);
    turn.Until(Now() + milliseconds(10));
    turn.Wait();
    server_->Handle(now_, turn, [this] { return text_; });
  }
  // Reads the answer on this connection up to its end.
  std::string Answer(int fd) {
    std::string out;
    const Time deadline = Now() + kHangGuard;
    std::vector<char> chunk(1 << 20);
    while (Now() < deadline) {
      const ssize_t n = recv(fd, chunk.data(), chunk.size(), MSG_DONTWAIT);
      if (n == 0) return out;
      if (n > 0) out.append(chunk.data(), static_cast<size_t>(n));
      Turn();
    }
    return "no end";
  }

  const Time now_ = Now();
  // The text exceeds the buffers of two sockets, so a client that does not read blocks its answer.
  const std::string text_ = std::string(16 << 20, 'x') + "end\n";
  std::unique_ptr<MetricsServer> server_;
};

TEST_F(MetricsServerTest, SlowClientsDoNotBlockOthers) {
  std::vector<UniqueFd> slow;
  for (int i = 0; i < 24; ++i) {
    slow.push_back(Connected(""));
    slow.push_back(Connected("GET /met"));
  }
  for (int i = 0; i < 4; ++i) slow.push_back(Connected("GET /metrics HTTP/1.1\r\n\r\n"));
  const UniqueFd fd = Connected("GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_THAT(Answer(fd.get()), AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("xend\n")));
  // The server keeps sixteen clients, of which one was the last; it dropped all others.
  EXPECT_EQ(server_->dropped(), slow.size() - 15);
}

}  // namespace
}  // namespace rewire::control
