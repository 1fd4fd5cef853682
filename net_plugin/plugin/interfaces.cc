#include "net_plugin/plugin/interfaces.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rewire::net {
namespace {

int SpeedOf(const std::string& name) {
  std::ifstream in("/sys/class/net/" + name + "/speed");
  int mbps = 0;
  return in >> mbps && mbps > 0 ? mbps : 0;
}

std::string PciPathOf(const std::string& name) {
  char path[PATH_MAX];
  const std::string link = "/sys/class/net/" + name + "/device";
  return realpath(link.c_str(), path) == nullptr ? "" : path;
}

void CopyAddress(const sockaddr* from, sockaddr_storage* to) {
  const bool v6 = from->sa_family == AF_INET6;
  std::memcpy(to, from, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
}

std::string_view AddressBytes(const sockaddr_storage& a) {
  if (a.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(a);
    return {reinterpret_cast<const char*>(&in.sin6_addr), sizeof in.sin6_addr};
  }
  const auto& in = reinterpret_cast<const sockaddr_in&>(a);
  return {reinterpret_cast<const char*>(&in.sin_addr), sizeof in.sin_addr};
}

bool InSubnetOf(const Interface& i, const sockaddr_storage& address) {
  if (i.address.ss_family != address.ss_family) return false;
  const std::string_view mine = AddressBytes(i.address);
  const std::string_view other = AddressBytes(address);
  const std::string_view mask = AddressBytes(i.netmask);
  for (size_t at = 0; at < mine.size(); ++at) {
    if (((mine[at] ^ other[at]) & mask[at]) != 0) return false;
  }
  return true;
}

// NCCL_COMM_ID: "10.0.0.1:4711", "host:4711" or "[fe80::1%eth0]:4711".
std::optional<sockaddr_storage> AddressOf(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return std::nullopt;
  sockaddr_storage out{};
  CopyAddress(found->ai_addr, &out);
  freeaddrinfo(found);
  return out;
}

template <typename Fits>
std::vector<Interface> Those(const std::vector<Interface>& all, Fits fits) {
  std::vector<Interface> out;
  for (const Interface& i : all) {
    const bool listed =
        std::any_of(out.begin(), out.end(), [&](const Interface& o) { return o.name == i.name; });
    if (!listed && fits(i) && out.size() < kMostInterfaces) out.push_back(i);
  }
  return out;
}

}  // namespace

NameList NameList::Parse(std::string_view text) {
  NameList list;
  list.none_of = text.starts_with('^');
  if (list.none_of) text.remove_prefix(1);
  list.exact = text.starts_with('=');
  if (list.exact) text.remove_prefix(1);
  list.names = absl::StrSplit(absl::string_view(text.data(), text.size()), ',', absl::SkipEmpty());
  return list;
}

std::string EnvironmentVariable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<std::vector<Interface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::InternalError(absl::StrCat("getifaddrs: ", strerror(errno)));
  }
  std::vector<Interface> out;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    constexpr unsigned int kUsable = IFF_UP | IFF_RUNNING;
    if (at->ifa_addr == nullptr || (at->ifa_flags & kUsable) != kUsable) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Interface i;
    i.name = at->ifa_name;
    CopyAddress(at->ifa_addr, &i.address);
    i.netmask.ss_family = i.address.ss_family;
    if (at->ifa_netmask != nullptr) CopyAddress(at->ifa_netmask, &i.netmask);
    i.pci_path = PciPathOf(i.name);
    i.speed_mbps = SpeedOf(i.name);
    out.push_back(std::move(i));
  }
  freeifaddrs(list);
  return out;
}

InterfaceRules RulesFromEnvironment() {
  InterfaceRules rules{
      EnvironmentVariable("NCCL_SOCKET_IFNAME"), EnvironmentVariable("NCCL_SOCKET_FAMILY"), {}};
  if (!rules.named()) rules.root = AddressOf(EnvironmentVariable("NCCL_COMM_ID"));
  return rules;
}

absl::StatusOr<std::vector<Interface>> Choose(const std::vector<Interface>& all,
                                              const InterfaceRules& rules) {
  int wanted = AF_UNSPEC;
  if (rules.family == "AF_INET") {
    wanted = AF_INET;
  } else if (rules.family == "AF_INET6") {
    wanted = AF_INET6;
  } else if (!rules.family.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL_SOCKET_FAMILY=", rules.family, ": must be AF_INET or AF_INET6"));
  }
  std::vector<Interface> fit;
  for (const Interface& i : all) {
    if (wanted == AF_UNSPEC || i.address.ss_family == wanted) fit.push_back(i);
  }
  const auto matching = [&](std::string_view names) {
    const NameList list = NameList::Parse(names);
    return Those(fit, [&](const Interface& i) {
      const bool named =
          std::any_of(list.names.begin(), list.names.end(),
                      [&](const std::string& listed) { return list.Fits(i.name, listed); });
      return named != list.none_of;
    });
  };
  std::vector<Interface> chosen;
  if (rules.named()) {
    chosen = matching(rules.names);
  } else {
    chosen = matching("ib");
    if (chosen.empty() && rules.root.has_value()) {
      chosen = Those(fit, [&](const Interface& i) { return InSubnetOf(i, *rules.root); });
      if (!chosen.empty()) chosen.resize(1);
    }
    for (const char* names : {"^docker,lo,virbr", "docker", "lo", "virbr"}) {
      if (chosen.empty()) chosen = matching(names);
    }
  }
  if (chosen.empty()) {
    return absl::NotFoundError(
        absl::StrCat("NCCL_SOCKET_IFNAME=", rules.names,
                     rules.family.empty() ? "" : absl::StrCat(" NCCL_SOCKET_FAMILY=", rules.family),
                     ": no network interface that is up matches"));
  }
  return chosen;
}

}  // namespace rewire::net
