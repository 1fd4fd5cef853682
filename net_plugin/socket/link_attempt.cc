#include "net_plugin/socket/link_attempt.h"

#include <netinet/in.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/address.h"

namespace rewire::net {
namespace {

constexpr Duration kAgain = milliseconds(10);

}  // namespace

LinkAttempt::LinkAttempt(const Route& route, MakeSocket make_socket)
    : route_(route),
      make_socket_(std::move(make_socket)),
      where_(AddressText(route.to.address)),
      begun_(Now()),
      link_(std::make_unique<Link>()) {
  link_->id = Random();
  link_->peer = route_.to.incarnation;
}

absl::Status LinkAttempt::Begin(int streams) {
  begun_ = Now();
  dials_.resize(static_cast<size_t>(streams));
  Hello hello;
  hello.streams = static_cast<uint16_t>(streams);
  hello.link = link_->id;
  hello.incarnation = route_.incarnation;
  hello.peer = route_.to.incarnation;
  hello.listener = route_.to.listener;
  for (Dial& dial : dials_) {
    hello.nonce = RandomNonce();
    dial.hello = EncodeHello(hello);
    ++hello.index;
    if (absl::Status started = Start(&dial); !started.ok()) return started;
  }
  return absl::OkStatus();
}

absl::Status LinkAttempt::Start(Dial* dial) {
  const sockaddr_storage& local = route_.local;
  const sockaddr_storage to = Scoped(route_.to.address, local);
  absl::StatusOr<UniqueFd> made = make_socket_(to.ss_family);
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
    return PeerFault("connect to " + where_, errno);
  }
  return absl::OkStatus();
}

absl::Status LinkAttempt::Again(Dial* dial, int error) {
  // A listener under load drops unauthenticated connections; a dead listener refuses connections.
  const bool dropped = error == ECONNRESET || error == EPIPE;
  if (!dropped || Now() - begun_ > route_.redial) return PeerFault("connect to " + where_, error);
  dial->fd.reset();
  dial->again = Now() + kAgain;
  return absl::OkStatus();
}

absl::Status LinkAttempt::Answer(Dial* dial) {
  const absl::StatusOr<Challenge> challenge = DecodeChallenge(dial->in);
  if (!challenge.ok()) {
    return absl::PermissionDeniedError(
        absl::StrCat("handshake with ", where_, ": ", std::string(challenge.status().message())));
  }
  if (challenge->answer == Answer::kVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("handshake with ", where_, ": version=", kWireVersion,
                     ": the peer has another version of the wire format"));
  }
  if (challenge->answer != Answer::kProve ||
      !SameCode(ProofOf(Side::kListening, route_.key, dial->hello, challenge->nonce),
                ViewOf(challenge->proof))) {
    return absl::PermissionDeniedError(
        "handshake with " + where_ +
        ": the peer has no such listener, or does not have the job's key");
  }
  dial->out = EncodeProof(ProofOf(Side::kConnecting, route_.key, dial->hello, challenge->nonce));
  dial->proved = true;
  return absl::OkStatus();
}

absl::Status LinkAttempt::AdvanceDial(Dial* dial) {
  if (!dial->fd.valid()) {
    if (Now() < dial->again) return absl::OkStatus();
    if (absl::Status started = Start(dial); !started.ok()) return started;
  }
  const int fd = dial->fd.get();
  const auto failed = [&](int error) {
    return dial->proved ? PeerFault("connect to " + where_, error) : Again(dial, error);
  };
  if (!dial->proved && dial->out.empty()) {
    char bytes[kChallengeBytes];
    const ssize_t n = recv(fd, bytes, kChallengeBytes - dial->in.size(), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return absl::OkStatus();
    if (n <= 0) return failed(n == 0 ? ECONNRESET : errno);
    dial->in.append(bytes, static_cast<size_t>(n));
    if (dial->in.size() < kChallengeBytes) return absl::OkStatus();
    if (absl::Status answered = Answer(dial); !answered.ok()) return answered;
  }
  if (dial->out.empty()) return absl::OkStatus();
  const ssize_t n = send(fd, dial->out.data(), dial->out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) return failed(errno);
  dial->out.erase(0, n > 0 ? static_cast<size_t>(n) : 0);
  return absl::OkStatus();
}

absl::StatusOr<bool> LinkAttempt::Advance() {
  bool proved = true;
  for (Dial& dial : dials_) {
    if (absl::Status advanced = AdvanceDial(&dial); !advanced.ok()) return advanced;
    proved = proved && dial.proved && dial.out.empty();
  }
  if (!proved) return false;
  char bytes[kWelcomeBytes];
  const ssize_t n = recv(dials_[0].fd.get(), bytes, kWelcomeBytes - welcome_.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) return PeerFault("handshake with " + where_, n == 0 ? ECONNRESET : errno);
  welcome_.append(bytes, static_cast<size_t>(n));
  if (welcome_.size() < kWelcomeBytes) return false;
  if (absl::Status welcome = CheckWelcome(welcome_); !welcome.ok()) {
    return absl::UnavailableError(
        absl::StrCat("handshake with ", where_, ": ", std::string(welcome.message())));
  }
  return true;
}

std::unique_ptr<Link> LinkAttempt::TakeLink() {
  for (Dial& dial : dials_) link_->streams.emplace_back(std::move(dial.fd));
  return std::move(link_);
}

}  // namespace rewire::net
