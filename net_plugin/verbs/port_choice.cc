#include "net_plugin/verbs/port_choice.h"

#include <algorithm>

#include "absl/strings/str_split.h"

namespace rewire::net {
namespace {

bool Fits(const std::string& wish, bool exact, const std::string& device, unsigned port) {
  const size_t colon = wish.find(':');
  const std::string name = wish.substr(0, colon);
  if (colon != std::string::npos && wish.substr(colon + 1) != std::to_string(port)) return false;
  return exact ? device == name : device.compare(0, name.size(), name) == 0;
}

}  // namespace

std::vector<PortChoice> ChoosePorts(std::span<const rdma::DeviceInfo> devices,
                                    std::string_view names) {
  const bool none_of = names.starts_with('^');
  if (none_of) names.remove_prefix(1);
  const bool exact = names.starts_with('=');
  if (exact) names.remove_prefix(1);
  const std::vector<std::string> wishes =
      absl::StrSplit(absl::string_view(names.data(), names.size()), ',', absl::SkipEmpty());
  std::vector<PortChoice> out;
  for (const rdma::DeviceInfo& d : devices) {
    for (const rdma::PortInfo& p : d.ports) {
      if (p.state != rdma::PortState::kActive) continue;
      const bool named = std::any_of(wishes.begin(), wishes.end(), [&](const std::string& wish) {
        return Fits(wish, exact, d.name, p.number);
      });
      if (wishes.empty() || named != none_of) out.push_back({d.name, p});
    }
  }
  return out;
}

}  // namespace rewire::net
