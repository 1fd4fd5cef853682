// A member without a GPU, for tests of the agent and the launcher. A toy member uses the real
// protocol and the real member state machine; its program only counts updates. It has one thread.
//
//   toy_member STOP_FILE   trains until the file exists, then detaches and exits with 0
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "reconfig/base/framed_socket.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/member/member.h"
#include "reconfig/elastic/protocol/codec.h"

namespace rewire {
namespace {

constexpr Duration kStep = milliseconds(2);

class ToyMember {
 public:
  ToyMember(elastic::MemberOptions options, std::string socket, std::string stop_file, int signals)
      : member_(std::move(options)),
        socket_path_(std::move(socket)),
        stop_file_(std::move(stop_file)),
        signals_(signals) {}

  int Run() {
    while (!exit_) {
      if (!socket_.valid()) Connect();
      Wait();
      Feed([this](elastic::Member::Out* out) {
        member_.OnTick(Now(), elastic::Heartbeat{begun_, {}}, out);
      });
      Program();
    }
    // The last messages must arrive before the end of the stream.
    while (socket_.valid() && socket_.WantsWrite() && socket_.Flush().ok()) {
      WaitReady(socket_.fd(), POLLOUT, Now() + seconds(1));
    }
    return *exit_;
  }

 private:
  template <typename Input>
  void Feed(const Input& input) {
    elastic::Member::Out actions;
    input(&actions);
    for (const elastic::MemberAction& a : actions) Do(a);
  }

  void Connect() {
    UniqueFd fd;
    if (!ConnectUnix(socket_path_, Now() + milliseconds(100), &fd).ok()) return;
    socket_ = FramedSocket(std::move(fd));
    Feed([this](elastic::Member::Out* out) { member_.OnConnected(Now(), out); });
  }

  void Wait() {
    pollfd polls[2] = {{signals_, POLLIN, 0}, {socket_.valid() ? socket_.fd() : -1, POLLIN, 0}};
    if (socket_.valid() && socket_.WantsWrite()) polls[1].events |= POLLOUT;
    poll(polls, 2, 2);
    signalfd_siginfo info;
    if (read(signals_, &info, sizeof info) == ssize_t{sizeof info}) {
      Feed([this](elastic::Member::Out* out) { member_.OnReclaim(Now(), seconds(120), out); });
    }
    if (polls[1].revents == 0) return;
    if ((polls[1].revents & POLLOUT) != 0) (void)socket_.Flush();
    const SocketStatus read = socket_.ReadReady();
    SocketStatus bad;
    while (const auto frame = socket_.Next(&bad)) {
      const absl::StatusOr<elastic::Message> message = elastic::Decode(*frame);
      if (!message.ok()) Die(std::string(message.status().message()).c_str());
      Feed([&](elastic::Member::Out* out) { member_.OnMessage(Now(), *message, out); });
    }
    if (read.ok()) return;
    socket_.Close();
    Feed([this](elastic::Member::Out* out) { member_.OnDisconnected(Now(), out); });
  }

  // Runs the training loop: an update every kStep, unless the program waits at the boundary.
  void Program() {
    if (exit_ || !in_world_ || standing_ || Now() < next_step_) return;
    next_step_ = Now() + kStep;
    if (joining_ || aborted_ || (pledged_ && begun_ >= *pledged_)) return Stand();
    if (access(stop_file_.c_str(), F_OK) == 0) {
      Feed([this](elastic::Member::Out* out) { member_.OnFinished(Now(), out); });
      exit_ = 0;
      return;
    }
    ++begun_;
  }

  void Stand() {
    standing_ = true;
    stood_at_ = Now();
    Describe();
  }

  void Describe() {
    // Toy members reduce nothing, so their update counts differ. Their state never changes, so all
    // members report the same version after a loss.
    const uint64_t version = aborted_ ? 0 : pledged_.value_or(0);
    const elastic::BoundaryInfo info{version, true, {version}, {version}, {}};
    Feed([&](elastic::Member::Out* out) { member_.OnBoundary(Now(), info, out); });
  }

  std::vector<elastic::CommunicatorCounter> Counters() const { return {{kUpdateBoundary, begun_}}; }

  void Do(const elastic::MemberAction& action) {
    const Time now = Now();
    if (const auto* a = std::get_if<elastic::SendMessage>(&action)) {
      const absl::StatusOr<std::string> frame = elastic::Encode(a->message);
      if (frame.ok() && socket_.valid() && socket_.Queue(*frame).ok()) (void)socket_.Flush();
    } else if (const auto* a = std::get_if<elastic::EnterWorld>(&action)) {
      in_world_ = true;
      joining_ = a->joining;
      printf("entered epoch %llu%s\n", static_cast<unsigned long long>(a->world.epoch),
             joining_ ? " joining" : "");
      fflush(stdout);
    } else if (const auto* a = std::get_if<elastic::MintIds>(&action)) {
      for (const CommunicatorId& c : a->communicators) {
        Feed([&](auto* out) {
          member_.OnMinted(now, a->epoch, c, {}, elastic::UniqueIdBytes(128, 'u'), out);
        });
      }
    } else if (const auto* a = std::get_if<elastic::MakePlan>(&action)) {
      Feed([&](auto* out) { member_.OnPlanned(now, a->epoch, a->epoch * 17, out); });
    } else if (const auto* a = std::get_if<elastic::BuildGenerations>(&action)) {
      Feed([&](auto* out) { member_.OnBuilt(now, a->epoch, absl::OkStatus(), Counters(), out); });
    } else if (const auto* a = std::get_if<elastic::PledgeCuts>(&action)) {
      Feed([&](auto* out) { member_.OnPledged(now, a->epoch, a->round, {}, Counters(), out); });
    } else if (const auto* a = std::get_if<elastic::PledgeBoundary>(&action)) {
      const bool ok = begun_ <= a->step;
      if (ok) pledged_ = a->step;
      std::optional<elastic::CutRefusal> refusal;
      if (!ok) refusal = elastic::CutRefusal{kUpdateBoundary, "the update has begun already"};
      Feed(
          [&](auto* out) { member_.OnPledged(now, a->epoch, a->round, refusal, Counters(), out); });
    } else if (const auto* a = std::get_if<elastic::DecideCuts>(&action)) {
      if (!a->go) return;
      Feed([&](auto* out) { member_.OnEntered(now, a->epoch, 0, out); });
    } else if (const auto* a = std::get_if<elastic::FinishStream>(&action)) {
      Streamed(a->epoch);
    } else if (const auto* a = std::get_if<elastic::RestoreFrom>(&action)) {
      Streamed(a->epoch);
    } else if (const auto* a = std::get_if<elastic::Adopt>(&action)) {
      joining_ = false;
      aborted_ = false;
      pledged_.reset();
      const uint64_t pause = standing_ ? static_cast<uint64_t>(ToNanoseconds(now - stood_at_)) : 0;
      Feed([&](auto* out) { member_.OnEntered(now, a->record.world.epoch, pause, out); });
    } else if (std::holds_alternative<elastic::DescribeBoundary>(action)) {
      if (standing_) Describe();
    } else if (std::holds_alternative<elastic::AbortCurrent>(action)) {
      aborted_ = true;
    } else if (std::holds_alternative<elastic::ReleaseBoundary>(action) ||
               std::holds_alternative<elastic::AbandonEpoch>(action)) {
      pledged_.reset();
    } else if (const auto* a = std::get_if<elastic::Resume>(&action)) {
      standing_ = false;
      if (a->kind == elastic::ResumeKind::kLeave) exit_ = 0;
    } else if (const auto* a = std::get_if<elastic::StopProcess>(&action)) {
      fprintf(stderr, "stopped: %s\n", a->reason.c_str());
      exit_ = 5;
    }
  }

  void Streamed(Epoch epoch) {
    Feed([&](auto* out) { member_.OnStreamed(Now(), epoch, absl::OkStatus(), 1000, 1000, out); });
  }

  [[noreturn]] static void Die(const char* what) {
    fprintf(stderr, "%s\n", what);
    _exit(6);
  }

  elastic::Member member_;
  const std::string socket_path_;
  const std::string stop_file_;
  const int signals_;
  FramedSocket socket_;
  std::optional<int> exit_;
  bool in_world_ = false;
  bool joining_ = false;
  bool aborted_ = false;
  bool standing_ = false;
  Time stood_at_{};
  std::optional<uint64_t> pledged_;
  uint64_t begun_ = 0;
  Time next_step_{};
};

}  // namespace
}  // namespace rewire

int main(int argc, char** argv) {
  using namespace rewire;
  if (argc != 2) return 2;
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const UniqueFd signals(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  const char* const local_rank = getenv("LOCAL_RANK");
  printf("local rank %s\n", local_rank == nullptr ? "unset" : local_rank);
  const Settings& settings = Settings::Get();
  elastic::MemberOptions options;
  options.member = static_cast<MemberId>(settings.member());
  options.incarnation = static_cast<uint64_t>(getpid());
  options.pid = static_cast<uint32_t>(getpid());
  options.cooperates = true;
  options.data_address = "127.0.0.1:1";
  options.heartbeat = milliseconds(settings.heartbeat_ms());
  return ToyMember(options, settings.socket(), argv[1], signals.get()).Run();
}
