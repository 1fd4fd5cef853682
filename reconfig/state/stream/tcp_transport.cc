// Runs the transport's owner thread; see tcp_transport.h.
#include "reconfig/state/stream/tcp_transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "reconfig/base/check.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/log.h"
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
  std::unique_ptr<TcpTransport> transport(
      new TcpTransport(options, std::move(listener), std::move(address)));
  if (!transport->commands_.event().valid()) {
    return absl::UnavailableError(std::string("eventfd: ") + strerror(errno));
  }
  transport->thread_ = std::thread([t = transport.get()] { t->Run(); });
  return transport;
}

TcpTransport::TcpTransport(const TcpOptions& options, UniqueFd listener, std::string address)
    : options_(options), listener_(std::move(listener)), address_(std::move(address)) {
  streams_.self = options.member;
  streams_.incarnation = options.incarnation;
}

TcpTransport::~TcpTransport() {
  commands_.Post([this] { stopping_ = true; });
  if (thread_.joinable()) thread_.join();
}

void TcpTransport::RunThere(std::function<void()> command) {
  REWIRE_DCHECK(!owner_.IsThisThread());
  bool ran = false;
  commands_.Post([&, command = std::move(command)] {
    command();
    MutexLock lock(&mutex_);
    ran = true;
    done_.NotifyAll();
  });
  MutexLock lock(&mutex_);
  // The command refers to this frame and to the caller's memory, so this function must not return
  // before the command ends. After a stop of the process, this thread may run before the owner
  // thread does; RunningDeadline excludes such stops.
  RunningDeadline deadline(options_.command);
  while (!ran) {
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
  auto counted = [this, bytes = fragment.bytes.size(), done = std::move(done)](absl::Status s) {
    if (s.ok()) streams_.bytes_out += bytes;
    done(std::move(s));
  };
  commands_.Post([this, key, to, fragment, done = std::move(counted)] {
    std::unique_ptr<TcpOutbound>& c = outbound_[{key, to.member}];
    if (c == nullptr) {
      const WorldMember self{options_.member, options_.incarnation, address_};
      c = std::make_unique<TcpOutbound>(key, self, to, options_.connect, options_.stall, Now());
    }
    c->Add(fragment, done, Now());
  });
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
  owner_.Take();
  // On Linux, this call sets the niceness of this thread only: training threads run first.
  setpriority(PRIO_PROCESS, 0, 10);
  TakeShortTurns();
  for (;;) {
    for (const auto& command : commands_.TakeAll()) command();
    if (stopping_) break;

    PollSet turn;
    turn.Add(commands_.event().fd(), POLLIN);
    turn.Until(Now() + seconds(1));
    listener_.Watch(Now(), &turn);
    for (const TcpInbound& c : inbound_) {
      turn.Add(c.fd(), POLLIN | (c.WantsWrite() ? POLLOUT : 0));
    }
    for (auto& [key, c] : outbound_) {
      c->OnTick(Now());
      turn.Until(c->NextTick());
      turn.Add(c->fd(), POLLIN | (c->WantsWrite() ? POLLOUT : 0));
    }
    turn.Wait();

    if (turn.Ready(commands_.event().fd()) != 0) commands_.event().Clear();
    const Time now = Now();
    for (TcpInbound& c : inbound_) {
      const int ready = turn.Ready(c.fd());
      if ((ready & POLLOUT) != 0) c.OnWritable();
      if (!c.closed() && (ready & ~POLLOUT) != 0) {
        const TcpInbound::Stage before = c.stage();
        c.OnReadable(now);
        if (c.stage() != before && !c.closed()) OnStage(c);
      }
      if (!c.closed()) c.OnTick(now);
    }
    std::erase_if(inbound_, [](const TcpInbound& c) { return c.closed(); });
    for (auto& [key, c] : outbound_) {
      if (const int ready = turn.Ready(c->fd()); ready != 0) c->OnReady(now, ready);
    }
    if (turn.Ready(listener_.fd()) != 0) AcceptAll(now);
  }
  outbound_.clear();
  inbound_.clear();
  // Remaining commands run, because callers wait for them; their fragments end with kCancelled.
  for (const auto& command : commands_.TakeAll()) command();
  outbound_.clear();
}

}  // namespace rewire::state
