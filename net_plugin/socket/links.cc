#include "net_plugin/socket/links.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/address.h"
#include "reconfig/base/hash.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

constexpr Duration kSweepEvery = milliseconds(100);

size_t DescriptorsFor(size_t share) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<size_t>(std::min<rlim_t>(limit.rlim_cur, 1 << 20)) / share;
}

// Identifies the pair of devices that a link joins.
uint64_t RailOf(const sockaddr_storage& local, uint64_t device, const ListenAddress& remote) {
  const uint64_t addresses = MixWord(AddressHash(local), AddressHash(remote.address));
  return MixWord(addresses, MixWord(device, remote.device));
}

}  // namespace

Links::Links(LinksOptions options)
    : options_(options),
      incarnation_(Random()),
      acceptors_(
          {options.hello, options.connect, 64, std::min<size_t>(1024, DescriptorsFor(4))},
          [this](const Hello& hello) REWIRE_REQUIRES(mutex_) {
            const auto at = waiting_.find(hello.listener);
            const bool here = at != waiting_.end() && hello.peer == incarnation_;
            return here ? std::optional(at->second.key) : std::nullopt;
          },
          [this](UniqueFd fd, const Hello& hello)
              REWIRE_REQUIRES(mutex_) { OnProved(std::move(fd), hello); },
          [this](const std::string& why) REWIRE_REQUIRES(mutex_) { Refuse(why); }),
      idle_(
          DescriptorsFor(4),
          [this](uint64_t listener) REWIRE_REQUIRES(mutex_) {
            const auto at = waiting_.find(listener);
            return at != waiting_.end() ? std::optional(at->second.key) : std::nullopt;
          },
          [this](uint64_t listener, std::unique_ptr<Link> link)
              REWIRE_REQUIRES(mutex_) { waiting_.at(listener).links.push_back(std::move(link)); }) {
}

Links::~Links() {
  std::optional<uint64_t> background;
  {
    MutexLock lock(&mutex_);
    background.swap(background_);
  }
  if (background) Workers::Get().Remove(*background);
}

absl::StatusOr<UniqueFd> Links::MakeSocket(int family) {
  for (const bool again : {false, true}) {
    UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.valid()) return fd;
    if (again || (errno != EMFILE && errno != ENFILE)) break;
    idle_.Clear();
  }
  return LocalFault("socket", errno);
}

void Links::Refuse(const std::string& why) {
  if (++counters_.unauthenticated == 1) {
    REWIRE_WARN(
        "net plugin: accept: an unauthenticated connection was refused: %s (further ones are "
        "counted in rewire_net_strangers_total, not logged)",
        why.c_str());
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
  idle_.Pump();
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
  idle_.DropEnded();
}

void Links::ReturnSending(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  idle_.KeepSending(std::move(link));
}

void Links::ReturnReceiving(std::unique_ptr<Link> link) {
  MutexLock lock(&mutex_);
  idle_.KeepReceiving(std::move(link));
}

std::unique_ptr<Link> Links::Reuse(const ListenAddress& address, uint64_t rail, size_t streams) {
  std::unique_ptr<Link> link = idle_.TakeSending(address.incarnation, rail, streams);
  if (link == nullptr) return nullptr;
  FrameHeader open;
  open.kind = FrameKind::kOpen;
  open.use = link->use + 1;
  open.sequence = address.listener;
  open.total = OpenTag(LinkKey(options_.job, address.incarnation, address.listener, address.key),
                       link->id, open.use);
  const absl::StatusOr<size_t> sent = link->streams[0].Write(&open, sizeof open, nullptr, 0);
  if (!sent.ok() || *sent != sizeof open) return nullptr;
  ++link->use;
  ++counters_.links_reused;
  return link;
}

absl::StatusOr<std::unique_ptr<Link>> Links::Connect(const sockaddr_storage& local, int streams,
                                                     ListenAddress* address, uint64_t device) {
  MutexLock lock(&mutex_);
  Sweep(Now());
  const uint64_t rail = RailOf(local, device, *address);
  if (address->attempt == 0) {
    std::unique_ptr<Link> link = Reuse(*address, rail, static_cast<size_t>(streams));
    if (link != nullptr) return link;
    const Key key = LinkKey(options_.job, address->incarnation, address->listener, address->key);
    LinkAttempt attempt({local, *address, key, incarnation_, options_.hello},
                        [this](int family) REWIRE_REQUIRES(mutex_) { return MakeSocket(family); });
    if (absl::Status begun = attempt.Begin(streams); !begun.ok()) return begun;
    address->attempt = Random();
    attempts_.emplace(address->attempt, Attempt{{}, std::move(attempt)});
  }
  const auto found = attempts_.find(address->attempt);
  if (found == attempts_.end()) {
    return absl::DeadlineExceededError(absl::StrCat("connect to ", AddressText(address->address),
                                                    ": the attempt was not polled for ",
                                                    ToMilliseconds(options_.connect), " ms"));
  }
  found->second.deadline = Now() + options_.connect;
  absl::StatusOr<bool> complete = found->second.link.Advance();
  const bool late = Now() - found->second.link.begun() > options_.answer;
  if (complete.ok() && !*complete && !late) return nullptr;
  if (complete.ok() && !*complete) {
    complete = absl::DeadlineExceededError(absl::StrCat(
        "handshake with ", AddressText(address->address), ": timed out after ",
        ToMilliseconds(options_.answer), " ms (the peer accepts connections and does not answer)"));
  }
  LinkAttempt ended = std::move(found->second.link);
  attempts_.erase(found);
  if (!complete.ok()) return complete.status();
  std::unique_ptr<Link> link = ended.TakeLink();
  link->rail = rail;
  ++counters_.links_made;
  return link;
}

}  // namespace rewire::net
