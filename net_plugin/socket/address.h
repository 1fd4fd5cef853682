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
// "127.0.0.1:80", "[::1]:80".
[[nodiscard]] std::string AddressText(const sockaddr_storage& address);

}  // namespace rewire::net
