#include "net_plugin/socket/links.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/random.h"
#include "net_plugin/socket/socket_error.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

constexpr Duration kSweepEvery = milliseconds(100);

size_t DescriptorsFor(size_t share) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) / share;
}

}  // namespace

Links::Links(LinksOptions options)
    : options_(options),
      incarnation_(Random()),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      acceptors_(
          {options.hello, options.connect, 64, std::min<size_t>(1024, DescriptorsFor(4))},
          [this](const Hello& hello) REWIRE_REQUIRES(mutex_) {
            const auto at = waiting_.find(hello.listener);
            const bool here = at != waiting_.end() && hello.peer == incarnation_;
            return here ? std::optional(at->second.key) : std::nullopt;
          },
          [this](UniqueFd fd, const Hello& hello)
              REWIRE_REQUIRES(mutex_) { OnProved(std::move(fd), hello); },
          [this](const char* why) REWIRE_REQUIRES(mutex_) { Refuse(why); }),
      most_idle_(DescriptorsFor(4)) {}

Links::~Links() {
  std::optional<uint64_t> background;
  {
    MutexLock lock(&mutex_);
    background.swap(background_);
  }
  if (background) Workers::Get().Remove(*background);
}

void Links::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Links::Unwatch(int fd) { epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

absl::StatusOr<UniqueFd> Links::MakeSocket(int family) {
  for (const bool again : {false, true}) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.valid()) return fd;
    if (again || (errno != EMFILE && errno != ENFILE)) break;
    sending_.clear();
    for (const auto& [number, link] : receiving_) Unwatch(number);
    receiving_.clear();
  }
  return LocalFault("socket", errno);
}

void Links::Refuse(const char* why) {
  if (++counters_.unauthenticated == 1) {
    REWIRE_WARN(
        "net plugin: accept: an unauthenticated connection was refused: %s (further ones are "
        "counted in rewire_net_strangers_total, not logged)",
        why);
  }
}

absl::StatusOr<ListenAddress> Links::Listen(const sockaddr_storage& local) {
  MutexLock lock(&mutex_);
  const absl::StatusOr<sockaddr_storage> bound = acceptors_.Listen(
      local, [this](int family) REWIRE_REQUIRES(mutex_) { return MakeSocket(family); });
  if (!bound.ok()) return bound.status();
  if (!background_ && Workers::Get().ok()) {
    background_ = Workers::Get().Add(acceptors_.events(), EPOLLIN, this, 0);
    Workers::Get().Arm(*background_);
  }
  ListenAddress address;
  address.address = *bound;
  address.incarnation = incarnation_;
  address.listener = Random();
  address.key = RandomKey();
  waiting_[address.listener].key =
      LinkKey(options_.job, incarnation_, address.listener, address.key);
  return address;
}

void Links::Drive(size_t /*stream*/) {
  MutexLock lock(&mutex_);
  if (!background_) return;
  acceptors_.Pump(Now());
  Sweep(Now());
  Workers::Get().Arm(*background_);
}

void Links::Unlisten(uint64_t listener) {
  MutexLock lock(&mutex_);
  waiting_.erase(listener);
}

absl::StatusOr<std::unique_ptr<Link>> Links::Accept(uint64_t listener) {
  MutexLock lock(&mutex_);
  Pump();
  const auto found = waiting_.find(listener);
  if (found == waiting_.end())
    return absl::FailedPreconditionError("accept: the listener was closed");
  std::vector<std::unique_ptr<Link>>& links = found->second.links;
  if (links.empty()) return nullptr;
  std::unique_ptr<Link> first = std::move(links.front());
  links.erase(links.begin());
  return first;
}

void Links::Pump() {
  acceptors_.Pump(Now());
  epoll_event events[64];
  int n = 64;
  while (n == 64) {
    n = epoll_wait(events_.get(), events, 64, 0);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      const auto r = receiving_.find(fd);
      if (r == receiving_.end() || Wake(&r->second)) continue;
      if (r->second != nullptr) Unwatch(fd);
      receiving_.erase(r);
    }
  }
  // Deadlines come after the pending input: Pump() may not have run for a long time.
  Sweep(Now());
}

void Links::OnProved(UniqueFd fd, const Hello& hello) {
  const auto listener = waiting_.find(hello.listener);
  if (listener == waiting_.end()) return Refuse("the listener was closed during the handshake");
  Arrival& arrival = arrivals_[hello.link];
  if (arrival.streams.empty()) {
    arrival.deadline = Now() + options_.connect;
    arrival.hello = hello;
    arrival.streams.resize(hello.streams);
  }
  if (arrival.hello.streams != hello.streams || arrival.hello.listener != hello.listener ||
      arrival.hello.incarnation != hello.incarnation || arrival.streams[hello.index].valid()) {
    return Refuse("it is no part of the link that it names");
  }
  arrival.streams[hello.index] = std::move(fd);
  if (++arrival.have < hello.streams) return;
  auto link = std::make_unique<Link>();
  link->id = hello.link;
  link->peer = hello.incarnation;
  for (UniqueFd& stream : arrival.streams) link->streams.emplace_back(std::move(stream));
  arrivals_.erase(hello.link);
  // A fresh connection's send buffer has room for eight bytes.
  const std::string welcome = EncodeWelcome();
  if (send(link->streams[0].fd(), welcome.data(), welcome.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
      static_cast<ssize_t>(welcome.size())) {
    listener->second.links.push_back(std::move(link));
  }
}

void Links::Sweep(Time now) {
  if (now - swept_ < kSweepEvery) return;
  swept_ = now;
  const auto late = [now](const auto& entry) { return entry.second.deadline <= now; };
  for (size_t n = std::erase_if(arrivals_, late); n > 0; --n) Refuse("its link stayed in parts");
  std::erase_if(attempts_, late);
  std::erase_if(sending_, [](const auto& link) { return EndOfUse(link.get()) == UseEnd::kGone; });
}

void Links::ReturnSending(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  const size_t streams = link->streams.size();
  while (!sending_.empty() && (sending_.size() + 1) * streams > most_idle_) {
    sending_.pop_front();
  }
  sending_.push_back(std::move(link));
}

void Links::ReturnReceiving(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  if ((receiving_.size() + 1) * link->streams.size() > most_idle_) return;
  FrameHeader finished;
  finished.kind = FrameKind::kFinished;
  finished.use = link->use;
  // The receiver sends hardly anything else, so the send buffer has room.
  const absl::StatusOr<size_t> said =
      link->streams[0].Write(&finished, sizeof finished, nullptr, 0);
  if (!said.ok() || *said != sizeof finished) return;
  // Frames that have already been read from the socket cause no event.
  if (!Wake(&link)) return;
  const int fd = link->streams[0].fd();
  Watch(fd);
  receiving_.emplace(fd, std::move(link));
}

bool Links::Wake(std::unique_ptr<Link>* link) {
  Link& l = **link;
  for (;;) {
    FrameHeader header;
    const absl::StatusOr<bool> headed = l.streams[0].ReadHeader(&header);
    if (!headed.ok()) return false;
    if (!*headed) return true;
    if (header.kind == FrameKind::kClose && header.use == l.use && !l.closed) {
      l.closed = true;
      continue;
    }
    if (header.kind != FrameKind::kOpen || !l.closed || header.use != l.use + 1) return false;
    const auto listener = waiting_.find(header.sequence);
    if (listener == waiting_.end() ||
        !IsOpenTag(header.total, listener->second.key, l.id, header.use)) {
      return false;
    }
    l.closed = false;
    ++l.use;
    Unwatch(l.streams[0].fd());
    listener->second.links.push_back(std::move(*link));
    return false;
  }
}

}  // namespace rewire::net
