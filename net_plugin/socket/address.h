// Socket addresses of IPv4 and IPv6, and the errors of the socket calls that use them, for the
// socket and verbs transports. Thread-safe.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rewire::net {

[[nodiscard]] socklen_t AddressLength(const sockaddr_storage& address);
// Compares the interface addresses and ignores the ports.
[[nodiscard]] bool SameHost(const sockaddr_storage& a, const sockaddr_storage& b);
[[nodiscard]] uint64_t AddressHash(const sockaddr_storage& address);
// Gives a link-local IPv6 address the scope of `local`: the peer's interface numbers differ.
[[nodiscard]] sockaddr_storage Scoped(const sockaddr_storage& to, const sockaddr_storage& local);
// Formats as "127.0.0.1" or "[::1]".
[[nodiscard]] std::string HostText(const sockaddr_storage& address);
// Formats as "127.0.0.1:80" or "[::1]:80".
[[nodiscard]] std::string AddressText(const sockaddr_storage& address);
// Formats the address of a connected socket's peer; "an unknown address" if there is none.
[[nodiscard]] std::string PeerText(int fd);

// Returns Unavailable for a failed call that is a fault of the peer or of the network: "what:
// error".
[[nodiscard]] absl::Status PeerFault(const std::string& what, int error);
// Returns ResourceExhausted for a failed call that is a fault of this machine.
[[nodiscard]] absl::Status LocalFault(const std::string& what, int error);

}  // namespace rewire::net
