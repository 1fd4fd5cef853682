#include "net_plugin/socket/acceptors.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/address.h"
#include "reconfig/base/listening_socket.h"

namespace rewire::net {
namespace {

// One turn accepts at most this many connections before other sockets get a turn.
constexpr int kTurn = 256;

bool SendWhole(int fd, const std::string& bytes) {
  // A fresh connection's send buffer has room for a challenge.
  return send(fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

}  // namespace

Acceptors::Acceptors(Options options, KeyOf key_of, Proved proved, Refused refused)
    : options_(options),
      key_of_(std::move(key_of)),
      proved_(std::move(proved)),
      refused_(std::move(refused)),
      events_(epoll_create1(EPOLL_CLOEXEC)),
      timer_(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)) {
  Watch(timer_.get());
}

void Acceptors::Watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  epoll_ctl(events_.get(), EPOLL_CTL_ADD, fd, &event);
}

void Acceptors::Unwatch(int fd) { epoll_ctl(events_.get(), EPOLL_CTL_DEL, fd, nullptr); }

absl::StatusOr<sockaddr_storage> Acceptors::Listen(
    const sockaddr_storage& local, const std::function<absl::StatusOr<UniqueFd>(int)>& socket_of) {
  for (const auto& [fd, acceptor] : acceptors_) {
    if (SameHost(acceptor.local, local)) return acceptor.bound;
  }
  absl::StatusOr<UniqueFd> fd = socket_of(local.ss_family);
  if (!fd.ok()) return fd.status();
  if (bind(fd->get(), reinterpret_cast<const sockaddr*>(&local), AddressLength(local)) != 0 ||
      listen(fd->get(), SOMAXCONN) != 0) {
    return LocalFault(absl::StrCat("listen on ", AddressText(local)), errno);
  }
  Acceptor acceptor;
  acceptor.local = local;
  socklen_t length = sizeof acceptor.bound;
  getsockname(fd->get(), reinterpret_cast<sockaddr*>(&acceptor.bound), &length);
  const int number = fd->get();
  acceptor.listener = ListeningSocket(*std::move(fd));
  Watch(number);
  return acceptors_.emplace(number, std::move(acceptor)).first->second.bound;
}

void Acceptors::Pump(Time now) {
  epoll_event events[64];
  const int n = epoll_wait(events_.get(), events, 64, 0);
  for (int i = 0; i < n; ++i) {
    const int fd = events[i].data.fd;
    if (const auto a = acceptors_.find(fd); a != acceptors_.end()) {
      TakeAll(now, &a->second);
    } else if (const auto p = pending_.find(fd); p != pending_.end()) {
      const bool challenged = p->second.hello.has_value();
      if (!Hear(&p->second)) {
        pending_.erase(p);
      } else if (p->second.hello.has_value() != challenged) {
        KeepLimits();
      }
    }
  }
  for (auto& [fd, acceptor] : acceptors_) {
    if (acceptor.listener.paused_until() && now >= *acceptor.listener.paused_until()) {
      acceptor.listener.Resume();
      Watch(fd);
    }
  }
  // Deadlines come after the pending input: Pump() may not have run for a long time.
  DropLate(now);
  if (n > 0 || !pending_.empty()) SetTimer(now);
}

void Acceptors::TakeAll(Time now, Acceptor* acceptor) {
  for (int turn = 0; turn < kTurn; ++turn) {
    Pending pending;
    pending.fd = acceptor->listener.Accept(now, &pending.source);
    if (!pending.fd.valid()) {
      if (!acceptor->listener.paused_until()) return;  // no further connection waits
      if (DropPending(false, 0)) {
        acceptor->listener.Resume();
        continue;
      }
      return Unwatch(acceptor->listener.fd());  // Pump() watches again after the pause
    }
    pending.since = Now();  // `since` orders connections by arrival
    // The hello has usually arrived already.
    if (!Hear(&pending)) continue;
    const int fd = pending.fd.get();
    Watch(fd);
    pending_.emplace(fd, std::move(pending));
    KeepLimits();
  }
}

void Acceptors::KeepLimits() {
  DropPending(false, options_.most_without_hello);
  DropPending(true, options_.most_challenged);
}

bool Acceptors::Hear(Pending* pending) {
  for (;;) {
    const size_t want = pending->hello ? kProofBytes : kHelloBytes;
    char bytes[kHelloBytes];
    const ssize_t n = recv(pending->fd.get(), bytes, want - pending->bytes.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (n <= 0) {
      Unwatch(pending->fd.get());
      refused_("the peer closed the connection before its authentication");
      return false;
    }
    pending->bytes.append(bytes, static_cast<size_t>(n));
    if (pending->bytes.size() < want) continue;
    if (!pending->hello) {
      const absl::StatusOr<Hello> hello = DecodeHello(pending->bytes);
      if (!hello.ok()) {
        Unwatch(pending->fd.get());
        refused_(std::string(hello.status().message()));
        return false;
      }
      if (!OnHello(pending, *hello)) return false;
      continue;
    }
    Unwatch(pending->fd.get());
    const absl::StatusOr<Code> proof = DecodeProof(pending->bytes);
    if (!proof.ok()) {
      refused_(std::string(proof.status().message()));
      return false;
    }
    if (!SameCode(pending->expected, ViewOf(*proof))) {
      refused_("wrong proof: the peer does not have this listener's and this job's key");
      return false;
    }
    proved_(std::move(pending->fd), *pending->hello);
    return false;
  }
}

bool Acceptors::OnHello(Pending* pending, const Hello& hello) {
  const auto refuse = [&](Answer answer, const char* why) {
    Unwatch(pending->fd.get());
    refused_(why);
    Challenge no;
    no.answer = answer;
    SendWhole(pending->fd.get(), EncodeChallenge(no));
    return false;
  };
  if (hello.version != kWireVersion) {
    return refuse(Answer::kVersion, "the peer has another version of the wire format");
  }
  const std::optional<Key> key = key_of_(hello);
  if (!key) return refuse(Answer::kUnknown, "the hello names no listener of this process");
  Challenge challenge;
  challenge.nonce = RandomNonce();
  challenge.proof = ProofOf(Side::kListening, *key, pending->bytes, challenge.nonce);
  pending->expected = ProofOf(Side::kConnecting, *key, pending->bytes, challenge.nonce);
  pending->hello = hello;
  pending->bytes.clear();
  if (SendWhole(pending->fd.get(), EncodeChallenge(challenge))) return true;
  Unwatch(pending->fd.get());
  refused_("the challenge could not be sent");
  return false;
}

void Acceptors::Drop(std::map<int, Pending>::iterator pending, const char* why) {
  Unwatch(pending->first);
  refused_(why);  // before the peer sees the close
  pending_.erase(pending);
}

bool Acceptors::DropPending(bool challenged, size_t above) {
  const auto counts = [challenged](const auto& entry) {
    return entry.second.hello.has_value() == challenged;
  };
  if (static_cast<size_t>(std::count_if(pending_.begin(), pending_.end(), counts)) <= above) {
    return false;
  }
  std::vector<PendingConnection> all;
  std::vector<std::map<int, Pending>::iterator> at;
  for (auto p = pending_.begin(); p != pending_.end(); ++p) {
    if (!counts(*p)) continue;
    all.push_back({p->second.source, p->second.since});
    at.push_back(p);
  }
  Drop(at[PendingConnectionToDrop(all)], challenged ? "too many connections without a proof"
                                                    : "too many connections without a hello");
  return true;
}

Time Acceptors::DeadlineOf(const Pending& pending) const {
  return pending.since + (pending.hello ? options_.proof : options_.hello);
}

void Acceptors::DropLate(Time now) {
  for (auto p = pending_.begin(); p != pending_.end();) {
    const auto next = std::next(p);
    if (now >= DeadlineOf(p->second)) Drop(p, "the handshake timed out");
    p = next;
  }
}

void Acceptors::SetTimer(Time now) {
  std::optional<Time> first;
  const auto earlier = [&first](Time t) { first = first ? std::min(*first, t) : t; };
  for (const auto& [fd, pending] : pending_) earlier(DeadlineOf(pending));
  for (const auto& [fd, acceptor] : acceptors_) {
    if (acceptor.listener.paused_until()) earlier(*acceptor.listener.paused_until());
  }
  itimerspec when{};
  if (first) {
    const auto wait = std::max<int64_t>(ToNanoseconds(*first - now), 1);
    when.it_value.tv_sec = wait / 1000000000;
    when.it_value.tv_nsec = wait % 1000000000;
  }
  timerfd_settime(timer_.get(), 0, &when, nullptr);  // the call also clears an expiry
}

}  // namespace rewire::net
