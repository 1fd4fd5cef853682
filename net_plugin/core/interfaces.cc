#include "net_plugin/core/interfaces.h"

#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
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

bool Begins(const std::string& name, std::string_view with) {
  return std::string_view(name).substr(0, with.size()) == with;
}

bool Loopback(const Interface& i) { return i.name == "lo"; }
bool Docker(const Interface& i) { return Begins(i.name, "docker"); }

template <typename Fits>
std::vector<Interface> Those(const std::vector<Interface>& all, Fits fits) {
  std::vector<Interface> out;
  for (const Interface& i : all) {
    const bool listed =
        std::any_of(out.begin(), out.end(), [&](const Interface& o) { return o.name == i.name; });
    if (!listed && fits(i)) out.push_back(i);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::vector<Interface>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    return absl::InternalError(absl::StrCat("getifaddrs: ", strerror(errno)));
  }
  std::vector<Interface> out;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    const int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Interface i;
    i.name = at->ifa_name;
    std::memcpy(&i.address, at->ifa_addr,
                family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    i.pci_path = PciPathOf(i.name);
    i.speed_mbps = SpeedOf(i.name);
    out.push_back(std::move(i));
  }
  freeifaddrs(list);
  return out;
}

absl::StatusOr<std::vector<Interface>> Choose(const std::vector<Interface>& all,
                                              std::string_view names, std::string_view family) {
  int wanted = AF_UNSPEC;
  if (family == "AF_INET") {
    wanted = AF_INET;
  } else if (family == "AF_INET6") {
    wanted = AF_INET6;
  } else if (!family.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("NCCL_SOCKET_FAMILY=", std::string(family), ": AF_INET or AF_INET6"));
  }
  std::vector<Interface> fit;
  for (const Interface& i : all) {
    if (wanted == AF_UNSPEC || i.address.ss_family == wanted) fit.push_back(i);
  }
  std::vector<Interface> chosen;
  if (names.empty()) {
    chosen = Those(fit, [](const Interface& i) { return Begins(i.name, "ib"); });
    if (chosen.empty()) {
      chosen = Those(fit, [](const Interface& i) { return !Loopback(i) && !Docker(i); });
    }
    if (chosen.empty()) chosen = Those(fit, Docker);
    if (chosen.empty()) chosen = Those(fit, Loopback);
  } else {
    const bool none_of = names[0] == '^';
    if (none_of) names.remove_prefix(1);
    const bool exact = !names.empty() && names[0] == '=';
    if (exact) names.remove_prefix(1);
    const std::vector<std::string> list =
        absl::StrSplit(absl::string_view(names.data(), names.size()), ',', absl::SkipEmpty());
    chosen = Those(fit, [&](const Interface& i) {
      const bool named = std::any_of(list.begin(), list.end(), [&](const std::string& n) {
        return exact ? i.name == n : Begins(i.name, n);
      });
      return named != none_of;
    });
  }
  if (chosen.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no network interface fits NCCL_SOCKET_IFNAME=", std::string(names),
        family.empty() ? "" : absl::StrCat(" with NCCL_SOCKET_FAMILY=", std::string(family))));
  }
  return chosen;
}

}  // namespace rewire::net
