// The transport's owner thread; see tcp_transport.h.
#include "reconfig/stream/tcp_transport.h"

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

#include "reconfig/base/device_wait.h"
#include "reconfig/base/log.h"
#include "reconfig/base/short_turns.h"
#include "reconfig/base/socket.h"

namespace rewire {
namespace {

// Between the end of what the owner thread waits for and its turn on a processor.
constexpr Duration kThreadPatience = seconds(60);

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
      address_(std::move(address)),
      thread_([this] { Run(); }) {}

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
  // A full counter wakes just as well.
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
  // The owner thread waits for nothing but a device, and for that at most kDevicePatience. The
  // command refers to this frame and to memory of the caller: without its end nothing is safe.
  const Time deadline = Now() + kDevicePatience + kThreadPatience;
  while (!ran) {
    if (done_.WaitUntil(&mutex_, deadline) || ran) continue;
    REWIRE_ERROR(
        "state stream: the thread rewire-data did not take a command within %.0f ms: "
        "the process ends, since its memory may be in use",
        ToMilliseconds(kDevicePatience + kThreadPatience));
    abort();
  }
}

void TcpTransport::Open(const StreamKey& key, FragmentSink* sink) {
  RunThere([this, key, sink] { streams_.sinks[key] = sink; });
}

void TcpTransport::Close(const StreamKey& key) {
  RunThere([this, key] {
    streams_.sinks.erase(key);
    for (TcpInbound& c : inbound_) {
      if (c.accepted() && c.key() == key) c.Close();
    }
    std::erase_if(outbound_, [&](const auto& entry) { return entry.first.first == key; });
  });
}

void TcpTransport::AnswerNames(uint64_t secret, Lookup lookup) {
  RunThere([this, secret, lookup = std::move(lookup)] {
    streams_.names_secret = secret;
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
        const Greeting greeting{key, options_.member, options_.incarnation};
        c = std::make_unique<TcpOutbound>(to, greeting, options_.connect, options_.stall, Now());
      }
      c->Add(fragment, done, Now());
    });
  }
  Wake();
}

TransportCounters TcpTransport::counters() const {
  return {streams_.bytes_in.load(), streams_.bytes_out.load(), streams_.dropped_stale.load(),
          streams_.dropped_garbage.load(), streams_.corrupted.load()};
}

void TcpTransport::AcceptAll() {
  for (;;) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    // An answer must not wait until the one before it was acknowledged.
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    inbound_.emplace_back(std::move(fd), &streams_, options_.stall, Now());
  }
}

void TcpTransport::Run() {
  pthread_setname_np(pthread_self(), "rewire-data");
  // On Linux this is the thread's own niceness: training goes first.
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
    fds.push_back({listener_.get(), POLLIN, 0});
    Time next = Now() + seconds(1);
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
      if (!c.closed() && (events & (POLLIN | POLLERR | POLLHUP)) != 0) c.OnReadable(now);
      if (!c.closed()) c.OnTick(now);
    }
    std::erase_if(inbound_, [](const TcpInbound& c) { return c.closed(); });
    for (TcpOutbound* c : out) {
      const short events = fds[i++].revents;
      if (events != 0) c->OnReady(now, events);
    }
    if ((fds[1].revents & POLLIN) != 0) AcceptAll();
  }
  outbound_.clear();
  inbound_.clear();
  // A command that somebody waits for runs even now; a fragment in it is done as cancelled.
  std::vector<std::function<void()>> rest;
  {
    MutexLock lock(&mutex_);
    rest.swap(commands_);
  }
  for (const auto& command : rest) command();
  outbound_.clear();
}

}  // namespace rewire
