// The network interfaces that may carry traffic, chosen by NCCL's rules: NCCL_SOCKET_IFNAME
// ("eth,ib": names that begin so; "=eth0": exactly; "^docker,lo": none of these) and
// NCCL_SOCKET_FAMILY (AF_INET, AF_INET6). Without a name the first of these that finds one: names
// that begin with "ib"; the one in the subnet of NCCL_COMM_ID; any but docker*, lo* and virbr*;
// docker*; lo*; virbr*. Choose() is pure.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::net {

struct Interface {
  std::string name;
  sockaddr_storage address{};  // port 0
  sockaddr_storage netmask{};  // of the same family
  std::string pci_path;        // empty: not on a bus
  int speed_mbps = 0;          // 0: not known
};

inline constexpr size_t kMostInterfaces = 16;  // as NCCL has

// The values of the variables, empty when not set.
struct InterfaceRules {
  std::string names;
  std::string family;
  std::optional<sockaddr_storage> root;  // NCCL_COMM_ID's address

  // NCCL takes one character for none.
  [[nodiscard]] bool named() const { return names.size() > 1; }
};

// All that are up and running and have an address of IPv4 or IPv6, in the kernel's order.
absl::StatusOr<std::vector<Interface>> ListInterfaces();
// The rules of this process's environment.
InterfaceRules RulesFromEnvironment();
// One per name, at most kMostInterfaces.
absl::StatusOr<std::vector<Interface>> Choose(const std::vector<Interface>& all,
                                              const InterfaceRules& rules);

}  // namespace rewire::net
