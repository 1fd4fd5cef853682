// Chooses the network interfaces that may carry traffic, by NCCL's rules, and reads NCCL's lists of
// names. Thread-safe.
//
// NCCL_SOCKET_IFNAME selects by name ("eth,ib": prefixes; "=eth0": exact name; "^docker,lo": all
// but these prefixes), NCCL_SOCKET_FAMILY by family (AF_INET, AF_INET6). Without a name, the first
// rule that matches decides: prefix "ib"; the subnet of NCCL_COMM_ID; any but docker*, lo* and
// virbr*; docker*; lo*; virbr*. Choose() is pure.
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
  std::string pci_path;        // empty: the interface is on no bus
  int speed_mbps = 0;          // 0: unknown
};

// A list of names in NCCL's settings: "a,b" (prefixes), "=a,b" (exact names) or "^a,b" (all but
// these).
struct NameList {
  static NameList Parse(std::string_view text);
  // True if the device or interface `name` fits the listed name, whatever none_of says.
  [[nodiscard]] bool Fits(std::string_view name, std::string_view listed) const {
    return exact ? name == listed : name.starts_with(listed);
  }

  bool none_of = false;
  bool exact = false;
  std::vector<std::string> names;
};

// Returns the value of an environment variable; empty if unset.
std::string EnvironmentVariable(const char* name);

inline constexpr size_t kMostInterfaces = 16;  // NCCL's limit

// The values of the environment variables; empty if unset.
struct InterfaceRules {
  std::string names;
  std::string family;
  std::optional<sockaddr_storage> root;  // the address in NCCL_COMM_ID

  // NCCL ignores a name of one character.
  [[nodiscard]] bool named() const { return names.size() > 1; }
};

// Lists all interfaces that are up, running and have an IPv4 or IPv6 address, in kernel order.
absl::StatusOr<std::vector<Interface>> ListInterfaces();
InterfaceRules RulesFromEnvironment();
// Returns at most one interface per name and at most kMostInterfaces in total.
absl::StatusOr<std::vector<Interface>> Choose(const std::vector<Interface>& all,
                                              const InterfaceRules& rules);

}  // namespace rewire::net
