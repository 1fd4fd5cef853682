#include "tests/process/agent/job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "reconfig/launcher/child.h"
#include "reconfig/launcher/member_environment.h"

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
  ChildSpec spec;
  spec.argv = argv;
  spec.environment = OwnEnvironment();
  for (const std::string& line : more_environment) spec.environment.push_back(line);
  spec.stdout_fd = out[1];
  spec.stderr_fd = err[1];
  spec.death_signal = SIGKILL;
  const absl::StatusOr<pid_t> pid = StartChild(spec);
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
  result_.status = EndOf(status).exit_code;
  return result_;
}

CommandResult Rewire(std::vector<std::string> arguments, Duration within) {
  arguments.insert(arguments.begin(), REWIRE_COMMAND);
  return Background(arguments).End(within);
}

TemporaryFolder::TemporaryFolder() {
  std::string name = std::filesystem::temp_directory_path() / "rewire-test-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) abort();
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

namespace {

std::vector<std::string> RunArguments(const TemporaryFolder& folder, int members, int max,
                                      const std::vector<std::string>& options) {
  std::vector<std::string> argv = {REWIRE_COMMAND,
                                   "run",
                                   "-n",
                                   std::to_string(members),
                                   "--max",
                                   std::to_string(max),
                                   "--no-preload",
                                   "--dir",
                                   folder / "run",
                                   "--agent-socket",
                                   folder / "agent.sock",
                                   "--trace-dir",
                                   folder / "traces"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"--", REWIRE_TOY_MEMBER, folder / "stop"});
  return argv;
}

}  // namespace

Job::Job(int members, int max, std::vector<std::string> options)
    : launcher_(RunArguments(folder_, members, max, options)) {
  // Formed: every first member has said that it is in the world.
  const bool formed = launcher_.ReadUntil(
      [members](const CommandResult& r) {
        size_t count = 0;
        for (size_t at = 0; (at = r.out.find("entered epoch 1\n", at)) != std::string::npos; ++at) {
          ++count;
        }
        return count == static_cast<size_t>(members);
      },
      seconds(20));
  EXPECT_TRUE(formed) << launcher_.End(seconds(1)).err;
}

CommandResult Job::Ask(const std::string& command, std::vector<std::string> arguments) {
  std::vector<std::string> all = {command, "--socket", socket()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Rewire(all);
}

nlohmann::json Job::Status() {
  const CommandResult r = Ask("status", {"--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  return nlohmann::json::parse(r.out, nullptr, false);
}

std::vector<int> Job::World() {
  std::vector<int> out;
  const nlohmann::json status = Status();
  for (const auto& m : status["world"]["members"]) out.push_back(m["member"].get<int>());
  return out;
}

CommandResult Job::Finish() {
  std::ofstream(folder_ / "stop") << "now";
  return launcher_.End(seconds(20));
}

}  // namespace rewire
