#include "tests/fakes/process/background.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "reconfig/control/launcher/child.h"
#include "reconfig/control/launcher/member_environment.h"

namespace rewire {

Background::Background(const std::vector<std::string>& argv,
                       const std::vector<std::string>& more_environment) {
  int out[2];
  int err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) abort();
  out_.reset(out[0]);
  err_.reset(err[0]);
  const UniqueFd out_write(out[1]);
  const UniqueFd err_write(err[1]);
  control::ChildSpec spec;
  spec.argv = argv;
  spec.environment = control::OwnEnvironment();
  for (const std::string& line : more_environment) spec.environment.push_back(line);
  spec.stdout_fd = out[1];
  spec.stderr_fd = err[1];
  spec.death_signal = SIGKILL;
  const absl::StatusOr<pid_t> pid = control::StartChild(spec);
  EXPECT_TRUE(pid.ok()) << pid.status();
  if (pid.ok()) pid_ = *pid;
}

Background::~Background() {
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Background::Signal(int signal) const {
  if (pid_ != 0) kill(pid_, signal);
}

bool Background::ReadSome(Time deadline) {
  pollfd polls[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  const auto left = std::chrono::ceil<milliseconds>(deadline - Now()).count();
  if (poll(polls, 2, static_cast<int>(std::max<int64_t>(left, 0))) <= 0) return false;
  char chunk[4096];
  for (int i = 0; i < 2; ++i) {
    if (polls[i].revents == 0) continue;
    UniqueFd& fd = i == 0 ? out_ : err_;
    const ssize_t n = read(fd.get(), chunk, sizeof chunk);
    if (n > 0) (i == 0 ? result_.out : result_.err).append(chunk, static_cast<size_t>(n));
    if (n == 0) fd.reset();
  }
  return true;
}

bool Background::ReadUntil(const std::function<bool(const CommandResult&)>& done, Duration within) {
  const Time deadline = Now() + within;
  while (!done(result_)) {
    if ((!out_.valid() && !err_.valid()) || !ReadSome(deadline)) return done(result_);
  }
  return true;
}

CommandResult Background::End(Duration within) {
  const Time deadline = Now() + within;
  while ((out_.valid() || err_.valid()) && ReadSome(deadline)) {
  }
  if (pid_ == 0 || out_.valid() || err_.valid()) return result_;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  result_.status = control::EndOf(status).exit_code;
  return result_;
}

CommandResult Rewire(std::vector<std::string> arguments, Duration within) {
  arguments.insert(arguments.begin(), REWIRE_COMMAND);
  return Background(arguments).End(within);
}

}  // namespace rewire
