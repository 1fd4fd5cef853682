// Two processes on real ibverbs: one of them stops for longer than a rail's timeout, also while a
// rail fails, or dies. A process that stops and continues causes no error; a death gives one error
// to the other process, in time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "reconfig/abi/net_core.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"
#include "tests/unit/net_plugin/on_devices/peer.h"

namespace rewire::net {
namespace {

constexpr Duration kPatience = seconds(60);
// REWIRE_NET_TIMEOUT=16 and REWIRE_NET_RETRIES=2 give a rail timeout of 0.8 s.
constexpr int kStandMs = 2000;

// A child process in one of this program's roles.
class Peer {
 public:
  Peer(const char* role, int in, int out) {
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    const char* const arguments[] = {"peer", role, nullptr};
    EXPECT_EQ(posix_spawn(&pid_, "/proc/self/exe", &files, nullptr,
                          const_cast<char* const*>(arguments), environ),
              0);
    posix_spawn_file_actions_destroy(&files);
  }
  ~Peer() {
    if (pid_ == -1) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Peer(const Peer&) = delete;
  void Signal(int number) const { kill(pid_, number); }
  // Returns the exit code; -1: it was killed, or does not end.
  int Wait() {
    int status = 0;
    const Time deadline = Now() + kPatience;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (Now() > deadline) return -1;
      poll(nullptr, 0, 10);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
};

class OnDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("REWIRE_VM_DEVICES") == nullptr) GTEST_SKIP() << "not in the virtual machine";
    int told[2];
    int heard[2];
    ASSERT_EQ(pipe2(told, O_CLOEXEC) + pipe2(heard, O_CLOEXEC), 0);
    marks_.reset(told[0]);
    UniqueFd out(told[1]);
    UniqueFd in(heard[0]);
    going_.reset(heard[1]);
    receiver_ = std::make_unique<Peer>("receive", STDIN_FILENO, out.get());
    sender_ = std::make_unique<Peer>("send", in.get(), STDOUT_FILENO);
    char bytes[kHandleBytes];
    for (char& byte : bytes) ASSERT_TRUE(Mark(&byte));
    ASSERT_EQ(write(going_.get(), bytes, sizeof bytes), ssize_t{sizeof bytes});
    out.reset();
    AwaitMessages();
  }
  void AwaitMessages() {
    char mark = 0;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Mark(&mark));
  }
  // Reads the receiver's next mark.
  bool Mark(char* byte) {
    pollfd told{marks_.get(), POLLIN, 0};
    return poll(&told, 1, static_cast<int>(ToMilliseconds(kPatience))) == 1 &&
           read(marks_.get(), byte, 1) == 1;
  }
  static void Break(const char* words) {
    ASSERT_EQ(std::system((std::string("fault ") + words).c_str()), 0) << words;
  }
  void StandStill(Peer* peer) {
    peer->Signal(SIGSTOP);
    poll(nullptr, 0, kStandMs);
    peer->Signal(SIGCONT);
    // Earlier marks do not count.
    char told[256];
    pollfd waiting{marks_.get(), POLLIN, 0};
    while (poll(&waiting, 1, 0) == 1 && read(marks_.get(), told, sizeof told) > 0) {
    }
    AwaitMessages();
  }

  UniqueFd marks_;  // from the receiver
  UniqueFd going_;  // to the sender, which sends until this is closed
  std::unique_ptr<Peer> receiver_;
  std::unique_ptr<Peer> sender_;
};

TEST_F(OnDevices, ContinuesAfterPeerWasStopped) {
  StandStill(receiver_.get());
  StandStill(sender_.get());
  // The process has fenced the rail, and the other process does not answer.
  Break("rxe0 netem loss 100%");
  StandStill(receiver_.get());
  Break("rxe0 clear");
  Break("rxe3 unplug");
  StandStill(sender_.get());
  Break("rxe3 clear");
  going_.reset();
  EXPECT_EQ(receiver_->Wait(), 0);
  EXPECT_EQ(sender_->Wait(), 0);
}

TEST_F(OnDevices, SendFailsWhenReceiverDies) {
  receiver_->Signal(SIGKILL);
  EXPECT_EQ(sender_->Wait(), kPeerFailed);
}

TEST_F(OnDevices, ReceiveFailsWhenSenderDies) {
  sender_->Signal(SIGKILL);
  EXPECT_EQ(receiver_->Wait(), kPeerFailed);
}

}  // namespace
}  // namespace rewire::net

int main(int argc, char** argv) {
  if (argc == 2 && argv[1][0] != '-') return rewire::net::RunPeer(argv[1]);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
