#include "net_plugin/socket/links.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/address.h"
#include "net_plugin/socket/random.h"
#include "net_plugin/socket/socket_error.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

constexpr size_t kMostGuests = 1024;
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
      most_resting_(DescriptorsFor(4)) {}

Links::~Links() = default;

NetCounters Links::counters() const {
  MutexLock lock(&mutex_);
  return counters_;
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

void Links::Stranger(const char* why) {
  if (++counters_.strangers == 1) REWIRE_WARN("net plugin: a stranger was turned away: %s", why);
}

absl::StatusOr<ListenAddress> Links::Listen(const sockaddr_storage& local) {
  MutexLock lock(&mutex_);
  auto at = std::find_if(acceptors_.begin(), acceptors_.end(),
                         [&](const auto& entry) { return SameHost(entry.second.local, local); });
  if (at == acceptors_.end()) {
    Acceptor a;
    a.local = local;
    absl::StatusOr<UniqueFd> fd_made = MakeSocket(local.ss_family);
    if (!fd_made.ok()) return fd_made.status();
    a.fd = *std::move(fd_made);
    socklen_t length = AddressLength(local);
    if (bind(a.fd.get(), reinterpret_cast<const sockaddr*>(&local), length) != 0 ||
        listen(a.fd.get(), SOMAXCONN) != 0) {
      return LocalFault(absl::StrCat("listening on ", AddressText(local)), errno);
    }
    length = sizeof a.bound;
    getsockname(a.fd.get(), reinterpret_cast<sockaddr*>(&a.bound), &length);
    Watch(a.fd.get());
    const int fd = a.fd.get();
    at = acceptors_.emplace(fd, std::move(a)).first;
  }
  ListenAddress address;
  address.address = at->second.bound;
  address.incarnation = incarnation_;
  address.listener = Random();
  address.key = Random();
  waiting_[address.listener].key = address.key;
  return address;
}

void Links::Unlisten(uint64_t listener) {
  MutexLock lock(&mutex_);
  waiting_.erase(listener);
}

absl::StatusOr<std::unique_ptr<Link>> Links::Accept(uint64_t listener) {
  MutexLock lock(&mutex_);
  Pump();
  const auto found = waiting_.find(listener);
  if (found == waiting_.end()) return absl::FailedPreconditionError("nobody listens any more");
  std::vector<std::unique_ptr<Link>>& links = found->second.links;
  if (links.empty()) return nullptr;
  std::unique_ptr<Link> first = std::move(links.front());
  links.erase(links.begin());
  return first;
}

void Links::Pump() {
  epoll_event events[64];
  int n = 64;
  while (n == 64) {
    n = epoll_wait(events_.get(), events, 64, 0);
    for (int i = 0; i < n; ++i) {
      const int fd = events[i].data.fd;
      if (const auto a = acceptors_.find(fd); a != acceptors_.end()) {
        TakeGuests(a->second);
      } else if (const auto g = guests_.find(fd); g != guests_.end()) {
        if (!Hear(&g->second)) guests_.erase(g);
      } else if (const auto r = receiving_.find(fd); r != receiving_.end()) {
        if (Wake(&r->second)) continue;
        if (r->second != nullptr) Unwatch(fd);
        receiving_.erase(r);
      }
    }
  }
  // Behind what has come: nobody may have looked for a long time.
  Sweep(Now());
}

void Links::TakeGuests(const Acceptor& acceptor) {
  // The kernel keeps those for whom there is no room yet.
  while (guests_.size() < kMostGuests) {
    UniqueFd fd(accept4(acceptor.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    const int number = fd.get();
    Guest guest{std::move(fd), Now() + options_.greeting, {}, 0};
    // What it has to say is mostly there already.
    if (!Hear(&guest)) continue;
    Watch(number);
    guests_.emplace(number, std::move(guest));
  }
}

bool Links::Hear(Guest* guest) {
  const ssize_t n =
      recv(guest->fd.get(), guest->bytes + guest->have, kHelloBytes - guest->have, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    Unwatch(guest->fd.get());
    Stranger("it left without a word");
    return false;
  }
  guest->have += static_cast<size_t>(n);
  if (guest->have < kHelloBytes) return true;
  Unwatch(guest->fd.get());
  const std::optional<Hello> hello = DecodeHello({guest->bytes, kHelloBytes});
  if (!hello) {
    Stranger("its first bytes are no greeting");
    return false;
  }
  Greet(std::move(guest->fd), *hello);
  return false;
}

void Links::Greet(UniqueFd fd, const Hello& hello) {
  const auto answer = [](int to, Welcome welcome) {
    const std::string bytes = EncodeWelcome(welcome);
    return send(to, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  };
  if (hello.version != kWireVersion) {
    answer(fd.get(), Welcome::kVersion);
    return Stranger("it speaks another version");
  }
  const auto listener = waiting_.find(hello.listener);
  if (listener == waiting_.end() || listener->second.key != hello.key ||
      hello.job != options_.job) {
    answer(fd.get(), Welcome::kStranger);
    return Stranger("it asks for nobody here, or with a wrong key");
  }
  Arrival& arrival = arrivals_[hello.link];
  if (arrival.streams.empty()) {
    arrival.deadline = Now() + options_.connect;
    arrival.hello = hello;
    arrival.streams.resize(hello.streams);
  }
  if (arrival.hello.streams != hello.streams || arrival.hello.listener != hello.listener ||
      arrival.streams[hello.index].valid()) {
    return Stranger("it is no part of the link that it names");
  }
  arrival.streams[hello.index] = std::move(fd);
  if (++arrival.have < hello.streams) return;
  auto link = std::make_unique<Link>();
  link->id = hello.link;
  link->peer = hello.incarnation;
  for (UniqueFd& stream : arrival.streams) link->streams.emplace_back(std::move(stream));
  arrivals_.erase(hello.link);
  // A fresh connection has room for eight bytes.
  if (answer(link->streams[0].fd(), Welcome::kYes)) {
    listener->second.links.push_back(std::move(link));
  }
}

void Links::Sweep(Time now) {
  if (now - swept_ < kSweepEvery) return;
  swept_ = now;
  const auto late = [now](const auto& entry) { return entry.second.deadline <= now; };
  for (const auto& [fd, guest] : guests_) {
    if (guest.deadline <= now) Unwatch(fd);
  }
  for (size_t n = std::erase_if(guests_, late); n > 0; --n) Stranger("it took too long");
  for (size_t n = std::erase_if(arrivals_, late); n > 0; --n) Stranger("its link stayed in parts");
  std::erase_if(attempts_, late);
  std::erase_if(sending_, [](const auto& link) { return RestOf(link.get()) == Rest::kGone; });
}

void Links::ReturnSending(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  const size_t streams = link->streams.size();
  while (!sending_.empty() && (sending_.size() + 1) * streams > most_resting_) {
    sending_.pop_front();
  }
  sending_.push_back(std::move(link));
}

void Links::ReturnReceiving(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  if ((receiving_.size() + 1) * link->streams.size() > most_resting_) return;
  FrameHeader rest;
  rest.kind = FrameKind::kRest;
  rest.use = link->use;
  // Hardly anything else goes this way: there is room.
  const absl::StatusOr<size_t> said = link->streams[0].Write(&rest, sizeof rest, nullptr, 0);
  if (!said.ok() || *said != sizeof rest) return;
  // What has come already no event will tell of.
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
    if (listener == waiting_.end() || listener->second.key != header.total) return false;
    l.closed = false;
    ++l.use;
    Unwatch(l.streams[0].fd());
    listener->second.links.push_back(std::move(*link));
    return false;
  }
}

}  // namespace rewire::net
