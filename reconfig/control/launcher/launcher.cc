// Runs the members of a job; see launcher.h. Owned by the launcher's thread.
#include "reconfig/control/launcher/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/control/launcher/child.h"

namespace rewire::control {
namespace {

// The wait from SIGKILL to the end of a process.
constexpr Duration kKillPatience = seconds(10);
// The wait for the processes of a world whose connections have all ended.
constexpr Duration kEndsPatience = seconds(1);

}  // namespace

Launcher::Launcher(LaunchOptions options)
    : options_(std::move(options)), environment_(OwnEnvironment()) {}

Launcher::~Launcher() { EndDescendants(); }

absl::StatusOr<int> Launcher::Run() {
  REWIRE_RETURN_IF_ERROR(BlockSignals());
  if (!options_.agent_command.empty()) REWIRE_RETURN_IF_ERROR(StartAgent());
  for (MemberId id = 0; id < options_.members; ++id) {
    REWIRE_RETURN_IF_ERROR(StartMember(id, id, id, options_.members));
  }
  Loop();
  ending_ = true;
  ReportLeftRunning();
  EndDescendants();
  if (agent_) {
    agent_->Stop(Now() + seconds(2));
    unlink(options_.agent_socket.c_str());  // a killed agent has left its socket
  }
  if (agent_output_) agent_output_->ReadToTheEnd();
  FlushAtEnd();
  return ExitStatus();
}

absl::Status Launcher::BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, s);
  if (sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return absl::InternalError("sigprocmask");
  signal(SIGPIPE, SIG_IGN);
  signals_.reset(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_.valid()) return absl::InternalError(absl::StrCat("signalfd: ", strerror(errno)));
  return absl::OkStatus();
}

absl::Status Launcher::StartAgent() {
  UniqueFd write_end;
  REWIRE_ASSIGN_OR_RETURN(ForwardedPipe output, ForwardedPipe::Make("[agent] ", &err_, &write_end));
  agent_output_.emplace(std::move(output));
  // The write end stays open: the next agent also gets it.
  const int stderr_fd = write_end.release();
  agent_ = std::make_unique<AgentProcess>(
      options_.agent_command, environment_, options_.agent_socket, stderr_fd,
      [this](const nlohmann::json& event) { OnAgentEvent(event); });
  agent_->SetReports([this] {
    std::vector<nlohmann::json> out;
    for (const auto& [id, m] : members_) {
      if (m.pid != 0) {
        out.push_back({{"command", "process"}, {"member", id}, {"pid", m.pid}});
      } else if (!told_) {  // the first world would wait for it
        out.push_back(ExitReport(m));
      }
    }
    return out;
  });
  const absl::Status started = agent_->StartAndWait(Now() + seconds(10));
  if (!started.ok()) {
    agent_->Stop(Now());
    agent_output_->ReadToTheEnd();
    FlushAtEnd();
  }
  return started;
}

nlohmann::json Launcher::ExitReport(const Member& member) {
  return {{"command", "exited"},
          {"member", member.id},
          {"how", Describe(member.end)},
          {"status", member.end.exit_code}};
}

std::set<pid_t> Launcher::Spared() const {
  if (agent_ && agent_->pid() != 0) return {agent_->pid()};
  return {};
}

// A program that has become a daemon would end without a word.
void Launcher::ReportLeftRunning() {
  if (ExitStatus() != 0) return;
  const std::vector<std::string> running = RunningChildren(Spared());
  if (running.empty()) return;
  err_.Add(
      absl::StrCat("rewire: the members have ended, so the processes that they have started are "
                   "killed (a member must not become a daemon): ",
                   absl::StrJoin(running, ", "), "\n"));
}

void Launcher::EndDescendants() {
  const std::set<pid_t> agent = Spared();
  if (KillDescendants(agent, Now() + kKillPatience)) return;
  err_.Add("rewire: a process of the job did not end within 10 s after SIGKILL\n");
}

bool Launcher::Runs(bool in_world) const {
  return std::any_of(members_.begin(), members_.end(), [&](const auto& m) {
    return m.second.pid != 0 && (!in_world || world_.contains(m.first));
  });
}

void Launcher::Loop() {
  while (Runs(/*in_world=*/false)) {
    PollSet turn;
    turn.Add(signals_.get(), POLLIN);
    if (!guard_ended_) turn.Add(options_.guard_fd, POLLIN);
    if (agent_) agent_->Watch(&turn);
    const auto add = [&turn](const ForwardedPipe& output) {
      if (output.wanted()) turn.Add(output.fd(), POLLIN);
    };
    for (const auto& [id, m] : members_) {
      for (const ForwardedPipe& output : m.outputs) add(output);
    }
    if (agent_output_) add(*agent_output_);
    for (const Output* o : {&out_, &err_}) {
      if (o->pending()) turn.Add(o->fd(), POLLOUT);
    }
    turn.Until(give_up_at_);
    turn.Until(rest_until_);
    turn.Until(stop_said_by_);
    for (const auto& [id, m] : members_) {
      if (m.pid != 0) turn.Until(m.kill_at);
    }
    turn.Wait();
    const Time now = Now();
    // Exits are handled first, so that the agent knows before output is copied.
    if (turn.Ready(signals_.get()) != 0) OnSignals(now);
    if (!guard_ended_ && turn.Ready(options_.guard_fd) != 0) OnGuardEnd();
    if (agent_) agent_->Handle(now, turn);
    for (auto& [id, m] : members_) {
      for (ForwardedPipe& output : m.outputs) {
        if (turn.Ready(output.fd()) != 0) output.Read();
      }
    }
    if (agent_output_ && turn.Ready(agent_output_->fd()) != 0) agent_output_->Read();
    for (Output* o : {&out_, &err_}) {
      if (turn.Ready(o->fd()) == 0) continue;
      o->WritePiece();
      if (const int error = o->TakeError()) {
        err_.Add(absl::StrCat("rewire: write output: fd=", o->fd(), ": ", strerror(error),
                              ": output is dropped until writing works again\n"));
      }
    }
    Tick(now);
  }
}

void Launcher::OnSignals(Time now) {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == ssize_t{sizeof info}) {
    const int signal = static_cast<int>(info.ssi_signo);
    if (signal != SIGCHLD) OnTerminate(now, signal);
  }
  ReapMembers(now);
  if (agent_) agent_->Reap(now);
  std::set<pid_t> own;
  for (const auto& [id, m] : members_) own.insert(m.pid);
  if (agent_) own.insert(agent_->pid());
  ReapAdopted(own);
}

void Launcher::OnGuardEnd() {
  guard_ended_ = true;
  err_.Add("rewire: `rewire run` was killed; every process of the job is killed\n");
  ++terminations_;
  SignalAll(SIGKILL);
}

void Launcher::OnTerminate(Time now, int signal) {
  ++terminations_;
  if (terminations_ > 1 && signal != SIGHUP) return SignalAll(SIGKILL);
  SignalAll(signal);
  // A member that takes SIGTERM as a reclaim notice cannot leave when all others get SIGTERM also.
  if (signal == SIGTERM) {
    for (auto& [id, m] : members_) m.kill_at = now + options_.grace;
  }
}

void Launcher::SignalAll(int signal) {
  for (const auto& [id, m] : members_) {
    if (m.pid != 0) kill(signal == SIGKILL ? -m.pid : m.pid, signal);
  }
}

void Launcher::ReapMembers(Time now) {
  for (auto& [id, m] : members_) {
    siginfo_t info{};
    if (m.pid == 0 ||
        waitid(P_PID, static_cast<id_t>(m.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid != m.pid) {
      continue;
    }
    // The process group's id cannot be reused before the member is reaped.
    kill(-m.pid, SIGKILL);
    int status = 0;
    while (waitpid(m.pid, &status, 0) < 0 && errno == EINTR) {
    }
    OnMemberEnd(now, &m, EndOf(status));
  }
}

void Launcher::OnMemberEnd(Time now, Member* member, const ChildEnd& end) {
  member->pid = 0;
  member->end = end;
  member->ended_as = ++ended_;
  if (agent_) agent_->Tell(ExitReport(*member));
  for (ForwardedPipe& output : member->outputs) output.ReadToTheEnd();
  if (end.good()) return;
  if (terminations_ == 0)
    err_.Add(absl::StrCat("rewire: member ", member->id, " ", Describe(end), "\n"));
  // In a world, the agent decides within its own deadlines whether the job continues. Before the
  // first world, the other members may wait for this member without end.
  if (!told_ && !give_up_at_) give_up_at_ = now + options_.grace;
}

void Launcher::OnAgentEvent(const nlohmann::json& event) {
  const std::string name = event.value("event", "");
  if (name == "world") {
    world_.clear();
    for (const nlohmann::json& m : event.at("members")) world_.insert(m.get<MemberId>());
    told_ = !world_.empty();
  } else if (name == "spawn") {
    OnSpawn(event);
  } else if (name == "end") {
    const auto found = members_.find(event.at("member").get<MemberId>());
    if (found == members_.end() || found->second.pid == 0) return;
    kill(found->second.pid, SIGTERM);
    found->second.kill_at = Now() + std::min<Duration>(options_.grace, seconds(5));
  } else if (name == "stop") {
    stopped_ = event.value("survivors", true);
    stop_reason_ = event.value("reason", "");
    stop_said_by_ = stopped_ ? Now() : Now() + kEndsPatience;
    if (!give_up_at_) give_up_at_ = Now() + options_.grace;
  }
}

// A world without a connection may have ended by itself, so its processes' ends are awaited first.
void Launcher::ReportStop(Time now) {
  if (!stop_said_by_) return;
  const bool running = Runs(/*in_world=*/true);
  const bool good = ExitStatus() == 0;
  if (running && good && now < *stop_said_by_) return;
  stop_said_by_.reset();
  if (running || !good) {
    err_.Add(absl::StrCat("rewire: the job is stopped: ", stop_reason_, "\n"));
    return;
  }
  const auto last = std::count_if(members_.begin(), members_.end(),
                                  [&](const auto& m) { return InLastWorld(m.first); });
  err_.Add(absl::StrCat("rewire: the job has ended: the members of its last world (", last,
                        ") ended with status 0, but not all of them called rewireDetach()\n"));
}

void Launcher::Tick(Time now) {
  if (agent_) agent_->Tick(now);
  if (agent_ && agent_->Hopeless() && !give_up_at_ && ExitStatus() != 0)
    OnAgentEvent({{"event", "stop"}, {"reason", "a member died, and no agent can be started"}});
  for (auto& [id, m] : members_) {
    if (m.pid != 0 && m.kill_at && now >= *m.kill_at) {
      err_.Add(absl::StrCat("rewire: member ", id, " did not end in time and is killed\n"));
      m.kill_at.reset();
      kill(-m.pid, SIGKILL);
    }
  }
  ReportStop(now);
  // Processes that left the world, or were lost, may hang.
  if (!told_ || Runs(/*in_world=*/true)) {
    rest_until_.reset();
  } else if (!rest_until_) {
    rest_until_ = now + options_.grace;
  }
  if (!give_up_at_ && rest_until_ && now >= *rest_until_) give_up_at_ = now;
  if (give_up_at_ && now >= *give_up_at_) {
    give_up_at_ = Time::max();
    err_.Add("rewire: the job is over: the remaining processes are asked to end\n");
    SignalAll(SIGTERM);
    for (auto& [id, m] : members_) m.kill_at = now + options_.grace;
  }
}

bool Launcher::InLastWorld(MemberId id) const {
  return told_ ? world_.count(id) != 0 : id < options_.members;
}

int Launcher::ExitStatus() const {
  const Member* first = nullptr;
  for (const auto& [id, m] : members_) {
    if (m.end.good() || !InLastWorld(id)) continue;
    if (first == nullptr || m.ended_as < first->ended_as) first = &m;
  }
  if (first == nullptr) return stopped_ ? 1 : 0;
  return first->end.exit_code;
}

void Launcher::FlushAtEnd() {
  // Like any program, the launcher ends when its reader has taken all output, or by a signal.
  for (Output* o : {&out_, &err_}) {
    while (o->pending()) {
      // A command that was killed has no reader for its output.
      if (guard_ended_) return;
      PollSet turn;
      turn.Add(o->fd(), POLLOUT);
      turn.Add(signals_.get(), POLLIN);
      turn.Add(options_.guard_fd, POLLIN);
      turn.Wait();
      guard_ended_ = turn.Ready(options_.guard_fd) != 0;
      if (turn.Ready(o->fd()) != 0) o->WritePiece();
      if (turn.Ready(signals_.get()) == 0) continue;
      signalfd_siginfo info;
      while (read(signals_.get(), &info, sizeof info) == ssize_t{sizeof info}) {
        if (info.ssi_signo != SIGCHLD) return;
      }
    }
  }
}

}  // namespace rewire::control
