// The connecting side of links; see links.h for callers and threads.
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/address.h"
#include "net_plugin/socket/links.h"
#include "net_plugin/socket/random.h"
#include "net_plugin/socket/socket_error.h"
#include "reconfig/base/hash.h"

namespace rewire::net {
namespace {

constexpr Duration kAgain = milliseconds(10);

// Identifies the pair of devices that a link joins.
uint64_t RailOf(const sockaddr_storage& local, uint64_t device, const ListenAddress& remote) {
  const uint64_t addresses = MixWord(AddressHash(local), AddressHash(remote.address));
  return MixWord(addresses, MixWord(device, remote.device));
}

}  // namespace

std::unique_ptr<Link> Links::TakeIdle(uint64_t peer, uint64_t rail, size_t streams) {
  for (auto at = sending_.begin(); at != sending_.end(); ++at) {
    Link& link = **at;
    if (link.peer != peer || link.rail != rail || link.streams.size() != streams) continue;
    if (EndOfUse(&link) != UseEnd::kBoth) continue;
    link.peer_finished = false;
    std::unique_ptr<Link> taken = std::move(*at);
    sending_.erase(at);
    return taken;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<Link>> Links::Connect(const sockaddr_storage& local, int streams,
                                                     ListenAddress* address, uint64_t device) {
  MutexLock lock(&mutex_);
  Sweep(Now());
  if (address->attempt == 0) {
    const uint64_t rail = RailOf(local, device, *address);
    std::unique_ptr<Link> link = TakeIdle(address->incarnation, rail, static_cast<size_t>(streams));
    if (link != nullptr) {
      FrameHeader open;
      open.kind = FrameKind::kOpen;
      open.use = link->use + 1;
      open.sequence = address->listener;
      open.total =
          OpenTag(LinkKey(options_.job, address->incarnation, address->listener, address->key),
                  link->id, open.use);
      const absl::StatusOr<size_t> sent = link->streams[0].Write(&open, sizeof open, nullptr, 0);
      if (sent.ok() && *sent == sizeof open) {
        ++link->use;
        ++counters_.links_reused;
        return link;
      }
    }
    absl::StatusOr<Attempt> attempt = Begin(local, streams, *address);
    if (!attempt.ok()) return attempt.status();
    attempt->link->rail = rail;
    address->attempt = Random();
    attempts_.emplace(address->attempt, *std::move(attempt));
  }
  const auto found = attempts_.find(address->attempt);
  if (found != attempts_.end()) found->second.deadline = Now() + options_.connect;
  if (found == attempts_.end()) {
    return absl::DeadlineExceededError(absl::StrCat("connect to ", AddressText(address->address),
                                                    ": the attempt was not polled for ",
                                                    ToMilliseconds(options_.connect), " ms"));
  }
  absl::StatusOr<bool> through = Advance(&found->second, local, *address);
  const bool late = Now() - found->second.begun > options_.answer;
  if (through.ok() && !*through && !late) return nullptr;
  if (through.ok() && !*through) {
    through = absl::DeadlineExceededError(
        absl::StrCat("handshake with ", AddressText(address->address), ": timed out after ",
                     ToMilliseconds(options_.answer),
                     " ms (the peer accepts connections and does "
                     "not answer)"));
  }
  Attempt ended = std::move(found->second);
  attempts_.erase(found);
  if (!through.ok()) return through.status();
  for (Dial& dial : ended.dials) ended.link->streams.emplace_back(std::move(dial.fd));
  ++counters_.links_made;
  return std::move(ended.link);
}

absl::StatusOr<Links::Attempt> Links::Begin(const sockaddr_storage& local, int streams,
                                            const ListenAddress& address) {
  Attempt attempt;
  attempt.begun = Now();
  attempt.deadline = attempt.begun + options_.connect;
  attempt.link = std::make_unique<Link>();
  attempt.link->id = Random();
  attempt.link->peer = address.incarnation;
  attempt.key = LinkKey(options_.job, address.incarnation, address.listener, address.key);
  attempt.dials.resize(static_cast<size_t>(streams));
  Hello hello;
  hello.streams = static_cast<uint16_t>(streams);
  hello.link = attempt.link->id;
  hello.incarnation = incarnation_;
  hello.peer = address.incarnation;
  hello.listener = address.listener;
  const sockaddr_storage to = Scoped(address.address, local);
  for (Dial& dial : attempt.dials) {
    hello.nonce = RandomNonce();
    dial.hello = EncodeHello(hello);
    ++hello.index;
    if (absl::Status started = Start(&dial, local, to); !started.ok()) return started;
  }
  return attempt;
}

absl::Status Links::Start(Dial* dial, const sockaddr_storage& local, const sockaddr_storage& to) {
  absl::StatusOr<UniqueFd> made = MakeSocket(to.ss_family);
  if (!made.ok()) return made.status();
  dial->fd = *std::move(made);
  dial->out = dial->hello;
  dial->in.clear();
  const int fd = dial->fd.get();
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  if (local.ss_family == to.ss_family) {
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&local), AddressLength(local)) != 0) {
      return LocalFault(absl::StrCat("bind to ", AddressText(local)), errno);
    }
  }
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), AddressLength(to)) != 0 &&
      errno != EINPROGRESS) {
    return PeerFault(absl::StrCat("connect to ", AddressText(to)), errno);
  }
  return absl::OkStatus();
}

absl::Status Links::Again(const Attempt& attempt, Dial* dial, const std::string& where, int error) {
  // A listener under load drops unauthenticated connections; a dead listener refuses connections.
  const bool dropped = error == ECONNRESET || error == EPIPE;
  if (!dropped || Now() - attempt.begun > options_.hello) {
    return PeerFault("connect to " + where, error);
  }
  dial->fd.reset();
  dial->again = Now() + kAgain;
  return absl::OkStatus();
}

absl::Status Links::AdvanceDial(Attempt* a, Dial* dial, const sockaddr_storage& local,
                                const ListenAddress& address) {
  const std::string where = AddressText(address.address);
  if (!dial->fd.valid()) {
    if (Now() < dial->again) return absl::OkStatus();
    absl::Status started = Start(dial, local, Scoped(address.address, local));
    if (!started.ok()) return started;
  }
  const int fd = dial->fd.get();
  const auto failed = [&](int error) REWIRE_REQUIRES(mutex_) {
    return dial->proved ? PeerFault("connect to " + where, error) : Again(*a, dial, where, error);
  };
  if (!dial->proved && dial->out.empty()) {
    char bytes[kChallengeBytes];
    const ssize_t n = recv(fd, bytes, kChallengeBytes - dial->in.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    if (n <= 0) return failed(n == 0 ? ECONNRESET : errno);
    dial->in.append(bytes, static_cast<size_t>(n));
    if (dial->in.size() < kChallengeBytes) return absl::OkStatus();
    const std::optional<Challenge> challenge = DecodeChallenge(dial->in);
    if (challenge && challenge->answer == Answer::kVersion) {
      return absl::FailedPreconditionError(
          absl::StrCat("handshake with ", where, ": version=", kWireVersion,
                       ": the peer has another version of the wire format"));
    }
    if (!challenge || challenge->answer != Answer::kProve ||
        !SameCode(ProofOf(Side::kListening, a->key, dial->hello, challenge->nonce),
                  ViewOf(challenge->proof))) {
      return absl::PermissionDeniedError(
          "handshake with " + where +
          ": the peer has no such listener, or does not have the job's key");
    }
    dial->out = EncodeProof(ProofOf(Side::kConnecting, a->key, dial->hello, challenge->nonce));
    dial->proved = true;
  }
  if (dial->out.empty()) return absl::OkStatus();
  const ssize_t n = send(fd, dial->out.data(), dial->out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return failed(errno);
  dial->out.erase(0, n > 0 ? static_cast<size_t>(n) : 0);
  return absl::OkStatus();
}

absl::StatusOr<bool> Links::Advance(Attempt* a, const sockaddr_storage& local,
                                    const ListenAddress& address) {
  bool proved = true;
  for (Dial& dial : a->dials) {
    absl::Status advanced = AdvanceDial(a, &dial, local, address);
    if (!advanced.ok()) return advanced;
    proved = proved && dial.proved && dial.out.empty();
  }
  if (!proved) return false;
  char bytes[kWelcomeBytes];
  const ssize_t n =
      recv(a->dials[0].fd.get(), bytes, kWelcomeBytes - a->welcome.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const std::string where = AddressText(address.address);
  if (n <= 0) return PeerFault("handshake with " + where, n == 0 ? ECONNRESET : errno);
  a->welcome.append(bytes, static_cast<size_t>(n));
  if (a->welcome.size() < kWelcomeBytes) return false;
  if (IsWelcome(a->welcome)) return true;
  return absl::UnavailableError("handshake with " + where + ": malformed welcome");
}

}  // namespace rewire::net
