// The network interfaces that may carry traffic, chosen by NCCL's rules: NCCL_SOCKET_IFNAME
// ("eth,ib": names that begin so; "=eth0": exactly; "^docker,lo": none of these) and
// NCCL_SOCKET_FAMILY (AF_INET, AF_INET6); without a name first those that begin with "ib", else any
// but docker* and lo, else docker*, else lo. Choose() is pure.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::net {

struct Interface {
  std::string name;
  sockaddr_storage address{};  // port 0
  std::string pci_path;        // empty: not on a bus
  int speed_mbps = 0;          // 0: not known
};

// All that are up and have an address of IPv4 or IPv6, in the kernel's order.
absl::StatusOr<std::vector<Interface>> ListInterfaces();
// One per name. names, family: the values of the two variables, empty when not set.
absl::StatusOr<std::vector<Interface>> Choose(const std::vector<Interface>& all,
                                              std::string_view names, std::string_view family);

}  // namespace rewire::net
