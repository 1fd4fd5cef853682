// Runs the transport's owner thread; see tcp_transport.h.
#include "reconfig/state/stream/tcp_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "reconfig/base/log.h"
#include "reconfig/base/pending_connections.h"
#include "reconfig/base/running_clock.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/base/socket.h"

namespace rewire::state {
namespace {

// Limit on unauthenticated connections in each of the two stages of the handshake.
constexpr size_t kMostPending = 64;
// Limit on one member's connections that ask for names.
constexpr size_t kMostQuestions = 8;
// One turn accepts at most this many connections before other sockets get a turn.
constexpr int kMostAccepts = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<TcpTransport>> TcpTransport::Start(const TcpOptions& options) {
  UniqueFd listener;
  std::string address;
  if (SocketStatus s = ListenTcp(options.listen, &listener, &address); !s.ok()) {
    return absl::UnavailableError(s.text);
  }
  UniqueFd wake(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!wake.valid()) {
    return absl::UnavailableError(std::string("eventfd: ") + strerror(errno));
  }
  return std::unique_ptr<TcpTransport>(
      new TcpTransport(options, std::move(listener), std::move(wake), std::move(address)));
}

TcpTransport::TcpTransport(const TcpOptions& options, UniqueFd listener, UniqueFd wake,
                           std::string address)
    : options_(options),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      address_(std::move(address)) {
  streams_.self = options.member;
  streams_.incarnation = options.incarnation;
  thread_ = std::thread([this] { Run(); });
}

TcpTransport::~TcpTransport() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  Wake();
  thread_.join();
}

void TcpTransport::Wake() {
  const uint64_t one = 1;
  // The write fails only on a full counter, and a full counter also wakes the thread.
  [[maybe_unused]] const ssize_t n = write(wake_.get(), &one, sizeof one);
}

void TcpTransport::RunThere(std::function<void()> command) {
  bool ran = false;
  {
    MutexLock lock(&mutex_);
    commands_.push_back([&, command = std::move(command)] {
      command();
      MutexLock inner(&mutex_);
      ran = true;
      done_.NotifyAll();
    });
  }
  Wake();
  MutexLock lock(&mutex_);
  // The command refers to this frame and to the caller's memory, so this function must not return
  // before the command ends. After a stop of the process, this thread may run before the owner
  // thread does; RunningDeadline excludes such stops.
  for (RunningDeadline deadline(options_.command); !ran;) {
    if (deadline.Passed()) {
      REWIRE_ERROR(
          "state stream: the thread rewire-data did not take a command within %.0f ms: "
          "the process ends, since its memory may be in use",
          ToMilliseconds(options_.command));
      abort();
    }
    done_.WaitUntil(&mutex_, deadline.NextTurn());
  }
}

void TcpTransport::Open(const StreamKey& key, std::vector<WorldMember> senders,
                        FragmentSink* sink) {
  RunThere([this, key, sink, senders = std::move(senders)]() mutable {
    streams_.open[{key.purpose, key.epoch}] = {key.secret, std::move(senders), sink};
  });
}

void TcpTransport::Close(const StreamKey& key) {
  RunThere([this, key] {
    streams_.open.erase({key.purpose, key.epoch});
    for (TcpInbound& c : inbound_) {
      const bool known = c.stage() != TcpInbound::Stage::kNothing;
      if (known && c.hello().purpose == key.purpose && c.hello().epoch == key.epoch) c.Close();
    }
    std::erase_if(outbound_, [&](const auto& entry) { return entry.first.first == key; });
  });
}

void TcpTransport::AnswerNames(const Key& key, Lookup lookup) {
  RunThere([this, key, lookup = std::move(lookup)] {
    streams_.names_key = key;
    streams_.lookup = lookup;
  });
}

void TcpTransport::Send(const StreamKey& key, const WorldMember& to, OutFragment fragment,
                        std::function<void(absl::Status)> done) {
  {
    MutexLock lock(&mutex_);
    auto counted = [this, bytes = fragment.bytes.size(), done = std::move(done)](absl::Status s) {
      if (s.ok()) streams_.bytes_out += bytes;
      done(std::move(s));
    };
    commands_.push_back([this, key, to, fragment, done = std::move(counted)] {
      std::unique_ptr<TcpOutbound>& c = outbound_[{key, to.member}];
      if (c == nullptr) {
        const WorldMember self{options_.member, options_.incarnation, address_};
        c = std::make_unique<TcpOutbound>(key, self, to, options_.connect, options_.stall, Now());
      }
      c->Add(fragment, done, Now());
    });
  }
  Wake();
}

TransportCounters TcpTransport::counters() const {
  return {streams_.bytes_in.load(),        streams_.bytes_out.load(), streams_.dropped_stale.load(),
          streams_.dropped_garbage.load(), streams_.refused.load(),   streams_.corrupted.load()};
}

bool TcpTransport::DropPending(TcpInbound::Stage stage, size_t above) {
  std::vector<PendingConnection> pending;
  std::vector<TcpInbound*> at;
  for (TcpInbound& c : inbound_) {
    if (c.closed() || c.stage() != stage) continue;
    pending.push_back(c.pending());
    at.push_back(&c);
  }
  if (pending.size() <= above) return false;
  at[PendingConnectionToDrop(pending)]->Close();
  ++streams_.refused;
  return true;
}

void TcpTransport::OnStage(const TcpInbound& connection) {
  if (connection.stage() == TcpInbound::Stage::kMember) return CloseOlder(connection);
  DropPending(connection.stage(), kMostPending);
}

void TcpTransport::CloseOlder(const TcpInbound& member) {
  const StreamHello& mine = member.hello();
  size_t others = 0;
  // The newest connections are at the end of the list.
  for (auto c = inbound_.rbegin(); c != inbound_.rend(); ++c) {
    if (&*c == &member || c->closed() || c->stage() != TcpInbound::Stage::kMember) continue;
    const StreamHello& hello = c->hello();
    if (hello.purpose != mine.purpose || hello.epoch != mine.epoch || hello.sender != mine.sender) {
      continue;
    }
    if (++others >= (mine.purpose == Purpose::kNames ? kMostQuestions : 1)) c->Close();
  }
}

void TcpTransport::AcceptAll(Time now) {
  for (int turn = 0; turn < kMostAccepts; ++turn) {
    uint64_t source = 0;
    UniqueFd fd = listener_.Accept(now, &source);
    if (!fd.valid()) {
      if (!listener_.paused_until() || !DropPending(TcpInbound::Stage::kNothing, 0)) return;
      listener_.Resume();
      continue;
    }
    // An answer must not wait for TCP's acknowledgement of the previous answer.
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    TcpInbound& c = inbound_.emplace_back(std::move(fd), source, &streams_, options_.stall, Now());
    c.OnReadable(now);  // the hello has usually arrived already
    if (c.closed()) {
      inbound_.pop_back();
    } else {
      OnStage(c);
    }
  }
}

void TcpTransport::Run() {
  pthread_setname_np(pthread_self(), "rewire-data");
  // On Linux, this call sets the niceness of this thread only: training threads run first.
  setpriority(PRIO_PROCESS, 0, 10);
  TakeShortTurns();
  for (;;) {
    std::vector<std::function<void()>> commands;
    bool stop = false;
    {
      MutexLock lock(&mutex_);
      commands.swap(commands_);
      stop = stop_;
    }
    for (const auto& command : commands) command();
    if (stop) break;

    std::vector<pollfd> fds;
    fds.push_back({wake_.get(), POLLIN, 0});
    fds.push_back(listener_.Poll(Now()));
    Time next = std::min(Now() + seconds(1), listener_.paused_until().value_or(Time::max()));
    for (const TcpInbound& c : inbound_) {
      fds.push_back({c.fd(), static_cast<short>(POLLIN | (c.WantsWrite() ? POLLOUT : 0)), 0});
    }
    std::vector<TcpOutbound*> out;
    for (auto& [key, c] : outbound_) {
      c->OnTick(Now());
      next = std::min(next, c->NextTick());
      if (c->fd() < 0) continue;
      out.push_back(c.get());
      fds.push_back({c->fd(), static_cast<short>(POLLIN | (c->WantsWrite() ? POLLOUT : 0)), 0});
    }
    const auto wait = std::chrono::ceil<milliseconds>(std::max(next - Now(), Duration::zero()));
    poll(fds.data(), fds.size(), static_cast<int>(wait.count()));

    if ((fds[0].revents & POLLIN) != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = read(wake_.get(), &count, sizeof count);
    }
    const Time now = Now();
    size_t i = 2;
    for (TcpInbound& c : inbound_) {
      const short events = fds[i++].revents;
      if ((events & POLLOUT) != 0) c.OnWritable();
      if (!c.closed() && (events & (POLLIN | POLLERR | POLLHUP)) != 0) {
        const TcpInbound::Stage before = c.stage();
        c.OnReadable(now);
        if (c.stage() != before && !c.closed()) OnStage(c);
      }
      if (!c.closed()) c.OnTick(now);
    }
    std::erase_if(inbound_, [](const TcpInbound& c) { return c.closed(); });
    for (TcpOutbound* c : out) {
      const short events = fds[i++].revents;
      if (events != 0) c->OnReady(now, events);
    }
    if ((fds[1].revents & POLLIN) != 0) AcceptAll(now);
  }
  outbound_.clear();
  inbound_.clear();
  // Remaining commands run, because callers wait for them; their fragments end with kCancelled.
  std::vector<std::function<void()>> rest;
  {
    MutexLock lock(&mutex_);
    rest.swap(commands_);
  }
  for (const auto& command : rest) command();
  outbound_.clear();
}

}  // namespace rewire::state
