// The connecting side of links; see links.h.
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

// Which two devices a link joins.
uint64_t RailOf(const sockaddr_storage& local, uint64_t device, const ListenAddress& remote) {
  const uint64_t addresses = MixWord(AddressHash(local), AddressHash(remote.address));
  return MixWord(addresses, MixWord(device, remote.device));
}

}  // namespace

std::unique_ptr<Link> Links::TakeResting(uint64_t peer, uint64_t rail, size_t streams) {
  for (auto at = sending_.begin(); at != sending_.end(); ++at) {
    Link& link = **at;
    if (link.peer != peer || link.rail != rail || link.streams.size() != streams) continue;
    if (RestOf(&link) != Rest::kBoth) continue;
    link.rested = false;
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
    std::unique_ptr<Link> link =
        TakeResting(address->incarnation, rail, static_cast<size_t>(streams));
    if (link != nullptr) {
      FrameHeader open;
      open.kind = FrameKind::kOpen;
      open.use = link->use + 1;
      open.sequence = address->listener;
      open.total = address->key;
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
    return absl::DeadlineExceededError(
        absl::StrCat("no answer from ", AddressText(address->address)));
  }
  absl::StatusOr<bool> through = Advance(&found->second, *address);
  const bool late = Now() - found->second.begun > options_.answer;
  if (through.ok() && !*through && !late) return nullptr;
  if (through.ok() && !*through) {
    through = absl::DeadlineExceededError(
        absl::StrCat(AddressText(address->address), " accepts connections and does not answer"));
  }
  Attempt ended = std::move(found->second);
  attempts_.erase(found);
  if (!through.ok()) return through.status();
  for (UniqueFd& fd : ended.fds) ended.link->streams.emplace_back(std::move(fd));
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
  const sockaddr_storage to = Scoped(address.address, local);
  for (int i = 0; i < streams; ++i) {
    absl::StatusOr<UniqueFd> made = MakeSocket(to.ss_family);
    if (!made.ok()) return made.status();
    UniqueFd fd = *std::move(made);
    const int on = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    if (local.ss_family == to.ss_family) {
      setsockopt(fd.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
      if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&local), AddressLength(local)) != 0) {
        return LocalFault(absl::StrCat("binding to ", AddressText(local)), errno);
      }
    }
    if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), AddressLength(to)) != 0 &&
        errno != EINPROGRESS) {
      return PeerFault(absl::StrCat("connecting to ", AddressText(to)), errno);
    }
    attempt.fds.push_back(std::move(fd));
  }
  attempt.sent.resize(attempt.fds.size());
  return attempt;
}

absl::StatusOr<bool> Links::Advance(Attempt* a, const ListenAddress& address) {
  const std::string where = AddressText(address.address);
  Hello hello;
  hello.streams = static_cast<uint16_t>(a->fds.size());
  hello.link = a->link->id;
  hello.incarnation = incarnation_;
  hello.listener = address.listener;
  hello.key = address.key;
  hello.job = options_.job;
  bool greeted = true;
  for (size_t i = 0; i < a->fds.size(); ++i) {
    if (a->sent[i] == kHelloBytes) continue;
    hello.index = static_cast<uint16_t>(i);
    const std::string bytes = EncodeHello(hello);
    const ssize_t n = send(a->fds[i].get(), bytes.data() + a->sent[i], kHelloBytes - a->sent[i],
                           MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
      return PeerFault("connecting to " + where, errno);
    }
    a->sent[i] += n > 0 ? static_cast<size_t>(n) : 0;
    greeted = greeted && a->sent[i] == kHelloBytes;
  }
  if (!greeted) return false;
  char bytes[kWelcomeBytes];
  const ssize_t n = recv(a->fds[0].get(), bytes, kWelcomeBytes - a->welcome.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (n <= 0) return PeerFault("greeting " + where, n == 0 ? ECONNRESET : errno);
  a->welcome.append(bytes, static_cast<size_t>(n));
  if (a->welcome.size() < kWelcomeBytes) return false;
  const std::optional<Welcome> welcome = DecodeWelcome(a->welcome);
  if (welcome == Welcome::kYes) return true;
  if (welcome == Welcome::kVersion) {
    return absl::FailedPreconditionError(where + " speaks another version of the wire format");
  }
  return absl::PermissionDeniedError(where + " does not know us: another job, or it gave up");
}

}  // namespace rewire::net
