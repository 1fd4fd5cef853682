// Starts, watches and stops the agent; see agent_process.h. Owned by the launcher's thread.
#include "reconfig/control/launcher/agent_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/agent/control_messages.h"

namespace rewire::control {
namespace {

constexpr Duration kFirstBackOff = milliseconds(20);
constexpr Duration kLongestBackOff = seconds(2);
constexpr Duration kHealthy = seconds(10);  // an agent that ran this long resets the failure count
constexpr size_t kMostBacklog = 4096;       // events that are kept without a connection
constexpr Duration kKillPatience = seconds(10);  // from SIGKILL to the end of a process

}  // namespace

AgentProcess::AgentProcess(std::vector<std::string> argv, std::vector<std::string> environment,
                           std::string socket, int stderr_fd, OnEvent on_event)
    : argv_(std::move(argv)),
      environment_(std::move(environment)),
      socket_path_(std::move(socket)),
      stderr_fd_(stderr_fd),
      on_event_(std::move(on_event)) {}

AgentProcess::~AgentProcess() { Stop(Now() + seconds(2)); }

absl::Status AgentProcess::Start(bool resume) {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0)
    return absl::ResourceExhaustedError(absl::StrCat("start agent: pipe2: ", strerror(errno)));
  ready_.reset(fds[0]);
  UniqueFd ready(fds[1]);
  ChildSpec spec;
  spec.argv = argv_;
  if (resume) spec.argv.emplace_back("--resume");
  spec.argv.push_back("--ready-fd=" + std::to_string(ready.get()));
  spec.environment = environment_;
  spec.stdout_fd = stderr_fd_;
  spec.stderr_fd = stderr_fd_;
  spec.keep_fd = ready.get();
  spec.new_session = true;
  spec.death_signal = SIGTERM;
  REWIRE_ASSIGN_OR_RETURN(pid_, StartChild(spec));
  started_ = Now();
  return absl::OkStatus();
}

absl::Status AgentProcess::StartAndWait(Time deadline) {
  REWIRE_RETURN_IF_ERROR(Start(/*resume=*/false));
  char byte = 0;
  if (!WaitReady(ready_.get(), POLLIN, deadline)) {
    return absl::DeadlineExceededError("start agent: not ready before the deadline");
  }
  if (read(ready_.get(), &byte, 1) != 1) {
    return absl::UnavailableError(
        "start agent: the agent exited before it was ready (see its log lines above)");
  }
  ready_.reset();
  Connect(Now());
  if (!connection_.valid())
    return absl::UnavailableError(
        absl::StrCat("start agent: socket=", socket_path_, ": no connection"));
  return absl::OkStatus();
}

void AgentProcess::Connect(Time now) {
  UniqueFd fd;
  if (const SocketStatus s = ConnectUnix(socket_path_, now + seconds(1), &fd); !s.ok()) {
    REWIRE_WARN("connect to the agent: %s", s.text.c_str());
    return;
  }
  connection_ = FramedSocket(std::move(fd));
  std::vector<nlohmann::json> first = {{{"command", "launch"}, {"pid", getpid()}}};
  if (reports_) {
    for (nlohmann::json& report : reports_()) first.push_back(std::move(report));
  }
  std::vector<nlohmann::json> backlog = std::exchange(backlog_, {});
  for (const nlohmann::json& event : first) Tell(event);
  for (const nlohmann::json& event : backlog) Tell(event);
}

void AgentProcess::Disconnect() { connection_.Close(); }

void AgentProcess::Tell(const nlohmann::json& event) {
  if (!connection_.valid()) {
    if (backlog_.size() < kMostBacklog) backlog_.push_back(event);
    return;
  }
  // A failure appears as the end of the stream, which poll(2) reports.
  if (connection_.Queue(EncodeControl(event)).ok()) (void)connection_.Flush();
}

void AgentProcess::Watch(PollSet* turn) const {
  turn->Until(restart_at_);
  turn->Add(ready_.get(), POLLIN);
  if (!connection_.valid()) return;
  turn->Add(connection_.fd(), POLLIN | (connection_.WantsWrite() ? POLLOUT : 0));
}

void AgentProcess::Handle(Time now, const PollSet& turn) {
  if (connection_.valid()) {
    const int ready = turn.Ready(connection_.fd());
    if ((ready & POLLOUT) != 0) (void)connection_.Flush();
    if ((ready & ~POLLOUT) != 0) ReadEvents();
  }
  if (turn.Ready(ready_.get()) != 0) {
    char byte = 0;
    const bool serves = read(ready_.get(), &byte, 1) == 1;
    ready_.reset();
    if (serves) Connect(now);
  }
}

void AgentProcess::ReadEvents() {
  const SocketStatus read = connection_.ReadReady();
  SocketStatus bad;
  while (const std::optional<std::string> frame = connection_.Next(&bad)) {
    const absl::StatusOr<nlohmann::json> event = DecodeControl(*frame);
    if (event.ok()) on_event_(*event);
  }
  if (!read.ok() || !bad.ok()) Disconnect();
}

void AgentProcess::Reap(Time now) {
  int status = 0;
  if (pid_ == 0 || waitpid(pid_, &status, WNOHANG) != pid_) return;
  pid_ = 0;
  ready_.reset();
  // Read the events that the agent sent before its death.
  if (connection_.valid()) ReadEvents();
  Disconnect();
  failures_ = now - started_ >= kHealthy ? 0 : failures_ + 1;
  const Duration wait = std::min(kLongestBackOff, kFirstBackOff * (1 << std::min(failures_, 10)));
  restart_at_ = now + wait;
  REWIRE_WARN("the agent %s: the next start is in %.0f ms; the members continue to train",
              Describe(EndOf(status)).c_str(), ToMilliseconds(wait));
}

void AgentProcess::Tick(Time now) {
  if (!restart_at_ || now < *restart_at_) return;
  restart_at_.reset();
  if (const absl::Status s = Start(/*resume=*/true); !s.ok()) {
    REWIRE_ERROR("start agent again: %s", std::string(s.message()).c_str());
    ++failures_;
    restart_at_ = now + kLongestBackOff;
  }
}

void AgentProcess::Stop(Time deadline) {
  restart_at_.reset();
  if (pid_ == 0) return;
  kill(pid_, SIGTERM);
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  // Read the agent's events until the agent ends. Example: the agent reports a world that was
  // committed while the last members ended.
  while (connection_.valid() && WaitReady(connection_.fd(), POLLIN, deadline)) ReadEvents();
  if (!process.valid() || !WaitReady(process.get(), POLLIN, deadline)) kill(pid_, SIGKILL);
  const Time killed_by = deadline + kKillPatience;
  while (waitpid(pid_, nullptr, WNOHANG) == 0 && Now() < killed_by) poll(nullptr, 0, 1);
  pid_ = 0;
  Disconnect();
}

}  // namespace rewire::control
