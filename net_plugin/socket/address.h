// Socket addresses of either family. Pure.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

namespace rewire::net {

[[nodiscard]] socklen_t AddressLength(const sockaddr_storage& address);
// The same interface, whatever the port.
[[nodiscard]] bool SameHost(const sockaddr_storage& a, const sockaddr_storage& b);
[[nodiscard]] uint64_t AddressHash(const sockaddr_storage& address);
// An IPv6 address of one link only, as it is reached from `local`: interfaces have other numbers on
// the peer's machine.
[[nodiscard]] sockaddr_storage Scoped(const sockaddr_storage& to, const sockaddr_storage& local);
// "127.0.0.1", "[::1]".
[[nodiscard]] std::string HostText(const sockaddr_storage& address);
// "127.0.0.1:80", "[::1]:80".
[[nodiscard]] std::string AddressText(const sockaddr_storage& address);

}  // namespace rewire::net
