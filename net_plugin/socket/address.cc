#include "net_plugin/socket/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "reconfig/base/hash.h"

namespace rewire::net {
namespace {

const sockaddr_in& V4(const sockaddr_storage& a) { return reinterpret_cast<const sockaddr_in&>(a); }
const sockaddr_in6& V6(const sockaddr_storage& a) {
  return reinterpret_cast<const sockaddr_in6&>(a);
}

}  // namespace

socklen_t AddressLength(const sockaddr_storage& a) {
  return a.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
}

bool SameHost(const sockaddr_storage& a, const sockaddr_storage& b) {
  if (a.ss_family != b.ss_family) return false;
  if (a.ss_family == AF_INET6) {
    return std::memcmp(&V6(a).sin6_addr, &V6(b).sin6_addr, sizeof(in6_addr)) == 0 &&
           V6(a).sin6_scope_id == V6(b).sin6_scope_id;
  }
  return V4(a).sin_addr.s_addr == V4(b).sin_addr.s_addr;
}

uint64_t AddressHash(const sockaddr_storage& a) {
  if (a.ss_family == AF_INET6) {
    return ContentHash(&V6(a).sin6_addr, sizeof(in6_addr), 0) + V6(a).sin6_port;
  }
  return MixWord(V4(a).sin_addr.s_addr, V4(a).sin_port);
}

sockaddr_storage Scoped(const sockaddr_storage& to, const sockaddr_storage& local) {
  sockaddr_storage out = to;
  if (to.ss_family == AF_INET6 && local.ss_family == AF_INET6 &&
      IN6_IS_ADDR_LINKLOCAL(&V6(to).sin6_addr)) {
    reinterpret_cast<sockaddr_in6&>(out).sin6_scope_id = V6(local).sin6_scope_id;
  }
  return out;
}

std::string HostText(const sockaddr_storage& a) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (a.ss_family == AF_INET6) {
    inet_ntop(AF_INET6, &V6(a).sin6_addr, text, sizeof text);
    return "[" + std::string(text) + "]";
  }
  inet_ntop(AF_INET, &V4(a).sin_addr, text, sizeof text);
  return text;
}

std::string AddressText(const sockaddr_storage& a) {
  const uint16_t port = a.ss_family == AF_INET6 ? V6(a).sin6_port : V4(a).sin_port;
  return HostText(a) + ":" + std::to_string(ntohs(port));
}

std::string PeerText(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof peer;
  const bool known = getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
                     (peer.ss_family == AF_INET || peer.ss_family == AF_INET6);
  return known ? AddressText(peer) : "an unknown address";
}

absl::Status PeerFault(const std::string& what, int error) {
  return absl::UnavailableError(absl::StrCat(what, ": ", strerror(error)));
}

absl::Status LocalFault(const std::string& what, int error) {
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", strerror(error)));
}

}  // namespace rewire::net
