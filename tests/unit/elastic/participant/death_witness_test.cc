// The witness of a process ends with the process's first threads, not with its last file.
#include "reconfig/elastic/participant/death_witness.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reconfig/base/framed_socket.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/elastic/protocol/codec.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire::elastic {
namespace {

constexpr Duration kPatience = seconds(60);

class DeathWitnessTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(ListenUnix(path_, &listener_).ok()); }
  FramedSocket Accept() {
    pollfd ready{listener_.get(), POLLIN, 0};
    EXPECT_EQ(poll(&ready, 1, 60000), 1);
    return FramedSocket(UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
  }
  static bool Ended(FramedSocket& socket) {
    std::string frame;
    const SocketStatus status = socket.Receive(&frame, Now() + kPatience);
    return !status.ok() && status.code != SocketCode::kTimeout;
  }
  static void ExpectWitness(FramedSocket& socket) {
    std::string frame;
    const SocketStatus status = socket.Receive(&frame, Now() + kPatience);
    ASSERT_TRUE(status.ok()) << status.text;
    const absl::StatusOr<Message> message = Decode(frame);
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_TRUE(std::holds_alternative<Witness>(*message));
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_ / "agent.sock";
  UniqueFd listener_;
};

TEST_F(DeathWitnessTest, EndsWithItsObject) {
  FramedSocket socket;
  {
    const DeathWitness witness(path_);
    socket = Accept();
    ExpectWitness(socket);
  }
  EXPECT_TRUE(Ended(socket));
}

// Another process shares the file table of the killed process, and so holds its files open as a
// thread does that has not ended.
TEST_F(DeathWitnessTest, EndsBeforeTheOtherFilesOfAKilledProcess) {
  int held[2];
  ASSERT_EQ(pipe(held), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(held[0]);
    const auto holder = static_cast<pid_t>(syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
    if (holder == 0) {
      for (;;) pause();
    }
    const DeathWitness witness(path_);
    if (write(held[1], &holder, sizeof holder) != sizeof holder) _exit(1);
    for (;;) pause();
  }
  close(held[1]);
  pid_t holder = 0;
  ASSERT_EQ(read(held[0], &holder, sizeof holder), ssize_t{sizeof holder});
  FramedSocket socket = Accept();
  ExpectWitness(socket);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(Ended(socket));
  pollfd pipe_end{held[0], POLLIN, 0};
  EXPECT_EQ(poll(&pipe_end, 1, 0), 0) << "the other files have ended also";
  kill(holder, SIGKILL);
  close(held[0]);
}

}  // namespace
}  // namespace rewire::elastic
