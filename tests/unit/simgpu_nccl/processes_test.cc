// Ranks as processes: a communicator's ordinary lifetime, and the death of a peer.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "tests/unit/simgpu_nccl/world.h"

namespace simnccl {
namespace {

// A running rank_program; killed by its id if it still runs at the end.
class Process {
 public:
  Process(int rank, int nranks) {
    int in[2];
    int out[2];
    if (::pipe2(in, O_CLOEXEC) != 0 || ::pipe2(out, O_CLOEXEC) != 0) std::abort();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    ::posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    const std::string host = "NCCL_HOSTID=host" + std::to_string(rank);
    std::vector<char*> env;
    for (char** v = environ; *v != nullptr; ++v) env.push_back(*v);
    env.push_back(const_cast<char*>(host.c_str()));
    env.push_back(nullptr);
    std::string r = std::to_string(rank);
    std::string n = std::to_string(nranks);
    char program[] = SIMNCCL_RANK_PROGRAM;
    char* argv[] = {program, r.data(), n.data(), nullptr};
    EXPECT_EQ(0, ::posix_spawn(&pid_, program, &actions, nullptr, argv, env.data()));
    ::posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  ~Process() {
    ::close(in_);
    Kill();
    ::close(out_);
  }
  void Tell(const std::string& bytes) {
    EXPECT_EQ(static_cast<ssize_t>(bytes.size()), ::write(in_, bytes.data(), bytes.size()));
  }
  // Returns the next `n` bytes, or the bytes that arrived within the test's time.
  std::string Hear(size_t n) {
    std::string heard;
    char c;
    pollfd ready{out_, POLLIN, 0};
    while (heard.size() < n && ::poll(&ready, 1, 30'000) > 0 && ::read(out_, &c, 1) == 1) {
      heard += c;
    }
    return heard;
  }
  void Kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
  int in_ = -1;
  int out_ = -1;
};

std::vector<std::unique_ptr<Process>> Start(int n) {
  std::vector<std::unique_ptr<Process>> ranks;
  for (int r = 0; r < n; ++r) ranks.push_back(std::make_unique<Process>(r, n));
  const std::string id = ranks[0]->Hear(sizeof(ncclUniqueId));
  for (int r = 1; r < n; ++r) ranks[r]->Tell(id);
  for (auto& rank : ranks) EXPECT_EQ("i", rank->Hear(1));
  return ranks;
}

TEST(Processes, ReduceAndDestroy) {
  auto ranks = Start(4);
  for (auto& rank : ranks) rank->Tell("rrd");
  for (auto& rank : ranks) EXPECT_EQ("rrd", rank->Hear(3));
}

TEST(Processes, AKilledPeerIsARemoteErrorAndAbortEndsTheWait) {
  auto ranks = Start(3);
  for (auto& rank : ranks) rank->Tell("r");
  for (auto& rank : ranks) EXPECT_EQ("r", rank->Hear(1));
  ranks[1]->Kill();
  // Both neighbours on the ring detect the death while they wait for data.
  const std::string error = "e" + std::to_string(ncclRemoteError);
  ranks[0]->Tell("wa");
  ranks[2]->Tell("wa");
  EXPECT_EQ(error + "a", ranks[0]->Hear(3));
  EXPECT_EQ(error + "a", ranks[2]->Hear(3));
}

}  // namespace
}  // namespace simnccl
