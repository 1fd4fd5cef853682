#include "tests/fakes/process/stopped_wait.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace rewire {
namespace {

// A test that exceeds this time hangs.
constexpr Duration kHangGuard = seconds(30);

// Returns a field of the main thread's status in /proc.
std::string StatusOf(pid_t process, const std::string& field) {
  std::ifstream in("/proc/" + std::to_string(process) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(field + ":\t")) return line.substr(field.size() + 2);
  }
  return "";
}

bool Eventually(const std::function<bool()>& condition) {
  const Time deadline = Now() + kHangGuard;
  while (!condition()) {
    if (Now() >= deadline) return false;
    usleep(1000);
  }
  return true;
}

void MakePipe(UniqueFd* out, UniqueFd* in) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) abort();
  out->reset(fds[0]);
  in->reset(fds[1]);
}

}  // namespace

StoppedWait::StoppedWait() {
  MakePipe(&begun_, &begin_);
  MakePipe(&released_, &release_);
}

void StoppedWait::Begin() const { EXPECT_EQ(write(begin_.get(), "x", 1), 1); }

void StoppedWait::Block() const {
  char byte = 0;
  EXPECT_EQ(read(released_.get(), &byte, 1), 1);
}

int StoppedWait::Run(Duration stop, const std::function<void()>& wait) {
  const pid_t process = fork();
  if (process == 0) {
    release_.reset();  // the end of the test ends Block()
    wait();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  begin_.reset();
  char byte = 0;
  EXPECT_EQ(read(begun_.get(), &byte, 1), 1);
  EXPECT_TRUE(Eventually([&] { return StatusOf(process, "State").starts_with("S"); }));
  kill(process, SIGSTOP);
  int status = 0;
  EXPECT_EQ(waitpid(process, &status, WUNTRACED), process);
  EXPECT_TRUE(WIFSTOPPED(status));
  for (const Time end = Now() + stop; Now() < end;) usleep(1000);
  const std::string turns = StatusOf(process, "voluntary_ctxt_switches");
  kill(process, SIGCONT);
  // The waiting thread sleeps again, or the process has ended.
  EXPECT_TRUE(Eventually([&] { return StatusOf(process, "voluntary_ctxt_switches") != turns; }));
  EXPECT_EQ(write(release_.get(), "x", 1), 1);
  const bool ended = Eventually([&] { return waitpid(process, &status, WNOHANG) == process; });
  if (ended) return status;
  ADD_FAILURE() << "the wait did not end";
  kill(process, SIGKILL);
  waitpid(process, &status, 0);
  return status;
}

}  // namespace rewire
