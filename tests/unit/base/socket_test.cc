// Sockets and framed connections.
#include "reconfig/base/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "reconfig/base/bytes.h"
#include "reconfig/base/framed_socket.h"
#include "tests/fakes/process/full_listener.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

Time Soon() { return Now() + seconds(20); }

std::string Frame(const std::string& payload) {
  ByteWriter w;
  w.PutString(payload);
  return w.Take();
}

class SocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/rewire-socket-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    int fds[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    left_ = FramedSocket(UniqueFd(fds[0]), 1000, 1 << 20);
    right_ = FramedSocket(UniqueFd(fds[1]), 1000, 1 << 20);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  FramedSocket left_;
  FramedSocket right_;
};

TEST_F(SocketTest, RejectsSocketOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const std::string path = folder_ + "/s";
  UniqueFd listener;
  ASSERT_EQ(seteuid(65534), 0);
  const std::string theirs = folder_ + "-theirs";
  ASSERT_EQ(mkdir(theirs.c_str(), 0755), 0);
  const SocketStatus own = ListenUnix(theirs + "/s", &listener);
  // Root's folder is trusted, but its mode does not let this user make a socket there.
  UniqueFd none;
  const SocketStatus roots = ListenUnix(path, &none);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(own.ok()) << own.text;
  EXPECT_EQ(roots.code, SocketCode::kFailed) << roots.text;
  UniqueFd client;
  SocketStatus s = ConnectUnix(theirs + "/s", Soon(), &client);
  EXPECT_EQ(s.code, SocketCode::kForeign);
  EXPECT_THAT(s.text, HasSubstr("the folder belongs to user 65534"));
  EXPECT_EQ(ListenUnix(theirs + "/mine", &none).code, SocketCode::kForeign);
  ASSERT_EQ(rename((theirs + "/s").c_str(), path.c_str()), 0);
  s = ConnectUnix(path, Soon(), &client);
  EXPECT_EQ(s.code, SocketCode::kForeign);
  EXPECT_THAT(s.text, HasSubstr("which listens, belongs to user 65534"));
  std::filesystem::remove_all(theirs);
}

TEST_F(SocketTest, UnixListenConnectAndPeer) {
  const std::string path = folder_ + "/s";
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(path, &listener).ok());
  UniqueFd client;
  ASSERT_TRUE(ConnectUnix(path, Soon(), &client).ok());
  UniqueFd server;
  ASSERT_TRUE(Accept(listener.get(), Soon(), &server).ok());
  PeerCredentials peer;
  ASSERT_TRUE(PeerOf(server.get(), &peer).ok());
  EXPECT_EQ(peer.uid, geteuid());
  EXPECT_EQ(peer.pid, getpid());
  EXPECT_THAT(ListenUnix(path, &server).text, HasSubstr("another process listens on " + path));
  listener.reset();
  EXPECT_EQ(ConnectUnix(path, Soon(), &client).code, SocketCode::kFailed);
  EXPECT_TRUE(ListenUnix(path, &listener).ok());  // the stale socket is replaced
}

// A stale socket is replaced while another thread looks for the path.
TEST_F(SocketTest, ReplacesListenerWithoutGap) {
  const std::string path = folder_ + "/s";
  UniqueFd listener;
  ASSERT_TRUE(ListenUnix(path, &listener).ok());
  std::atomic<bool> looking = false;
  std::atomic<bool> stop = false;
  int gone = 0;
  std::thread looks([&] {
    for (looking = true; !stop;) gone += access(path.c_str(), F_OK) == 0 ? 0 : 1;
  });
  while (!looking) std::this_thread::yield();
  for (int i = 0; i < 3000; ++i) {
    listener.reset();
    EXPECT_TRUE(ListenUnix(path, &listener).ok());
  }
  stop = true;
  looks.join();
  EXPECT_EQ(gone, 0);
}

TEST_F(SocketTest, ErrorsNameInvalidPathOrAddress) {
  UniqueFd fd;
  const std::string file = folder_ + "/file";
  std::ofstream(file) << "precious";
  EXPECT_THAT(ListenUnix(file, &fd).text,
              HasSubstr(file + ": the path exists and is not a socket of an ended process"));
  EXPECT_TRUE(std::filesystem::exists(file));
  EXPECT_THAT(ListenUnix(folder_ + "/" + std::string(200, 'x'), &fd).text,
              HasSubstr("1 to 107 bytes"));
  EXPECT_THAT(ConnectUnix("", Soon(), &fd).text, HasSubstr("1 to 107 bytes"));
  EXPECT_THAT(ConnectUnix(folder_ + "/none", Soon(), &fd).text, HasSubstr("/none: No such file"));
  for (const char* wrong : {"", "host:1", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536",
                            "127.0.0.1:1x", "127.0.0.1:-1"}) {
    EXPECT_THAT(ConnectTcp(wrong, Soon(), &fd).text,
                HasSubstr("'" + std::string(wrong) + "': must have the form"))
        << wrong;
  }
}

TEST_F(SocketTest, TcpTransfersBytesAndFailsWithoutListener) {
  UniqueFd listener;
  std::string bound;
  ASSERT_TRUE(ListenTcp("127.0.0.1:0", &listener, &bound).ok());
  UniqueFd client;
  ASSERT_TRUE(ConnectTcp(bound, Soon(), &client).ok());
  UniqueFd server;
  ASSERT_TRUE(Accept(listener.get(), Soon(), &server).ok());
  ASSERT_TRUE(SendAll(client.get(), "hello", Soon()).ok());
  char text[5];
  ASSERT_TRUE(ReceiveAll(server.get(), text, 5, Soon()).ok());
  EXPECT_EQ(std::string(text, 5), "hello");
  EXPECT_EQ(ReceiveAll(server.get(), text, 1, Now()).code, SocketCode::kTimeout);
  client.reset();
  EXPECT_EQ(ReceiveAll(server.get(), text, 1, Soon()).code, SocketCode::kClosed);
  EXPECT_EQ(Accept(listener.get(), Now(), &server).code, SocketCode::kTimeout);
  listener.reset();
  EXPECT_THAT(ConnectTcp(bound, Soon(), &client).text, HasSubstr(bound + ": Connection refused"));
}

TEST_F(SocketTest, AsksListenerWithFullQueueAgain) {
  FullListener full;
  std::thread connecting([&] {
    UniqueFd client;
    const SocketStatus s = ConnectTcp(full.address(), Soon(), &client);
    EXPECT_TRUE(s.ok()) << s.text;
  });
  EXPECT_TRUE(full.WaitForAttempts(3));
  EXPECT_TRUE(full.Drain().valid());
  connecting.join();
  UniqueFd late;
  FullListener other;
  EXPECT_THAT(ConnectTcp(other.address(), Now() + milliseconds(600), &late).text,
              HasSubstr("timed out"));
}

TEST_F(SocketTest, FramesArriveWholeAndInOrder) {
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(left_.Send(Frame(std::string(static_cast<size_t>(i), 'a')), Soon()).ok());
  }
  left_.Close();
  std::string frame;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(right_.Receive(&frame, Soon()).ok()) << i;
    EXPECT_EQ(frame, Frame(std::string(static_cast<size_t>(i), 'a')));
  }
  EXPECT_EQ(right_.Receive(&frame, Soon()).code, SocketCode::kClosed);
}

TEST_F(SocketTest, ReadsFramesByteByByte) {
  const std::string bytes = Frame("one") + Frame("") + Frame("two");
  std::vector<std::string> got;
  for (const char c : bytes) {
    ASSERT_TRUE(SendAll(left_.fd(), std::string_view(&c, 1), Soon()).ok());
    ASSERT_TRUE(right_.ReadReady().ok());
    SocketStatus s;
    while (const auto frame = right_.Next(&s)) got.push_back(*frame);
    ASSERT_TRUE(s.ok());
  }
  EXPECT_EQ(got, (std::vector<std::string>{Frame("one"), Frame(""), Frame("two")}));
}

TEST_F(SocketTest, RejectsOversizedFramesWithoutAllocating) {
  EXPECT_EQ(left_.Queue(Frame(std::string(1000, 'x'))).code, SocketCode::kOversize);
  ASSERT_TRUE(SendAll(left_.fd(), "\xff\xff\xff\xff", Soon()).ok());
  std::string frame;
  const SocketStatus s = right_.Receive(&frame, Soon());
  EXPECT_EQ(s.code, SocketCode::kOversize);
  EXPECT_THAT(s.text, HasSubstr("4294967299 bytes; at most 1000"));
  // The stream has no frame boundaries any more, so a valid frame after the bad length is refused.
  ASSERT_TRUE(SendAll(left_.fd(), Frame("valid"), Soon()).ok());
  EXPECT_EQ(right_.Receive(&frame, Soon()).code, SocketCode::kOversize);
}

TEST_F(SocketTest, LimitsQueueForSlowReader) {
  const std::string frame = Frame(std::string(900, 'x'));
  SocketStatus s;
  int queued = 0;
  while (s.ok() && queued < 1000000) {
    s = left_.Queue(frame);
    if (s.ok()) s = left_.Flush();
    ++queued;
  }
  EXPECT_EQ(s.code, SocketCode::kOversize);
  EXPECT_THAT(s.text, HasSubstr("too slow"));
  EXPECT_EQ(left_.Send("", Now()).code, SocketCode::kTimeout);
  // No accepted frame is lost.
  std::string got;
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(right_.Receive(&got, Soon()).ok());
    EXPECT_EQ(got, frame);
  }
}

TEST_F(SocketTest, WriteToClosedPeerRaisesNoSignal) {
  right_.Close();
  EXPECT_EQ(left_.Send(Frame("x"), Soon()).code, SocketCode::kClosed);
  EXPECT_EQ(SendAll(left_.fd(), "x", Soon()).code, SocketCode::kClosed);
}

}  // namespace
}  // namespace rewire
