#include "bench/trainer/rendezvous.h"

#include <poll.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/socket.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

constexpr char kGreeting[] = "gpt_train";

absl::StatusOr<int> Number(const char* name, int fallback, int least, int most) {
  const char* text = std::getenv(name);
  if (text == nullptr) return fallback;
  int value = 0;
  const char* end = text + strlen(text);
  const auto parsed = std::from_chars(text, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || value < least || value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, "='", text, "' must be ", least, "..", most));
  }
  return value;
}

absl::Status ToStatus(const SocketStatus& s) {
  if (s.ok()) return absl::OkStatus();
  return absl::UnavailableError("rendezvous: " + s.text);
}

absl::Status Serve(const Place& place, const ncclUniqueId& id, Time deadline) {
  UniqueFd listener;
  REWIRE_RETURN_IF_ERROR(ToStatus(ListenTcp(place.address, &listener, nullptr)));
  for (int given = 1; given < place.slots;) {
    UniqueFd peer;
    REWIRE_RETURN_IF_ERROR(ToStatus(Accept(listener.get(), deadline, &peer)));
    // An unauthenticated peer on the port gets nothing and does not count.
    char greeting[sizeof kGreeting];
    const Time soon = std::min(deadline, Now() + seconds(2));
    if (!ReceiveAll(peer.get(), greeting, sizeof greeting, soon).ok() ||
        memcmp(greeting, kGreeting, sizeof kGreeting) != 0) {
      continue;
    }
    if (SendAll(peer.get(), {id.internal, sizeof id.internal}, soon).ok()) ++given;
  }
  return absl::OkStatus();
}

absl::StatusOr<ncclUniqueId> Fetch(const Place& place, Time deadline) {
  for (;;) {
    UniqueFd peer;
    ncclUniqueId id;
    SocketStatus s = ConnectTcp(place.address, deadline, &peer);
    if (s.ok()) s = SendAll(peer.get(), {kGreeting, sizeof kGreeting}, deadline);
    if (s.ok()) s = ReceiveAll(peer.get(), id.internal, sizeof id.internal, deadline);
    if (s.ok()) return id;
    // Slot 0 may not listen yet.
    if (Now() >= deadline) return ToStatus(s);
    poll(nullptr, 0, 2);
  }
}

}  // namespace

absl::StatusOr<int> Place::LocalRank() { return Number("LOCAL_RANK", 0, 0, 1023); }

absl::StatusOr<Place> Place::FromEnvironment() {
  Place p;
  REWIRE_ASSIGN_OR_RETURN(p.slots, Number("WORLD_SIZE", 1, 1, 1024));
  REWIRE_ASSIGN_OR_RETURN(p.slot, Number("RANK", 0, 0, p.slots - 1));
  REWIRE_ASSIGN_OR_RETURN(p.local_rank, Number("LOCAL_RANK", p.slot, 0, 1023));
  if (p.slots == 1) return p;
  const char* address = std::getenv("MASTER_ADDR");
  if (address == nullptr || std::getenv("MASTER_PORT") == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("WORLD_SIZE=", p.slots, " needs MASTER_ADDR and MASTER_PORT"));
  }
  REWIRE_ASSIGN_OR_RETURN(const int port, Number("MASTER_PORT", 0, 1, 65535));
  const std::string host = strcmp(address, "localhost") == 0 ? "127.0.0.1" : address;
  p.address = absl::StrCat(host, ":", port);
  return p;
}

absl::StatusOr<ncclUniqueId> ShareUniqueId(
    const Place& place, Duration within,
    const std::function<absl::StatusOr<ncclUniqueId>()>& mint) {
  const Time deadline = Now() + within;
  if (place.slot != 0) return Fetch(place, deadline);
  REWIRE_ASSIGN_OR_RETURN(const ncclUniqueId id, mint());
  if (place.slots > 1) REWIRE_RETURN_IF_ERROR(Serve(place, id, deadline));
  return id;
}

}  // namespace rewire::trainer
