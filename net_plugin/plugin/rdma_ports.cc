#include "net_plugin/plugin/rdma_ports.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "net_plugin/plugin/interfaces.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {
namespace {

// True if the port is the listed one: a device's name, or a device and a port ("mlx5_1:1").
bool Fits(const NameList& list, const std::string& listed, const std::string& device,
          unsigned port) {
  const size_t colon = listed.find(':');
  if (colon != std::string::npos && listed.substr(colon + 1) != std::to_string(port)) return false;
  return list.Fits(device, std::string_view(listed).substr(0, colon));
}

}  // namespace

std::vector<PortChoice> ChoosePorts(std::span<const rdma::DeviceInfo> devices,
                                    std::string_view names) {
  const NameList list = NameList::Parse(names);
  std::vector<PortChoice> out;
  for (const rdma::DeviceInfo& d : devices) {
    for (const rdma::PortInfo& p : d.ports) {
      if (p.state != rdma::PortState::kActive) continue;
      const bool named = std::any_of(
          list.names.begin(), list.names.end(),
          [&](const std::string& listed) { return Fits(list, listed, d.name, p.number); });
      if (list.names.empty() || named != list.none_of) out.push_back({d.name, p});
    }
  }
  return out;
}

absl::StatusOr<std::vector<std::shared_ptr<Nic>>> OpenPorts() {
  if (EnvironmentVariable("NCCL_IB_DISABLE") == "1")
    return absl::NotFoundError("NCCL_IB_DISABLE=1");
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<rdma::Driver> driver, OpenDriver());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<rdma::DeviceInfo> devices, driver->Devices());
  const std::string names = EnvironmentVariable("NCCL_IB_HCA");
  std::vector<std::shared_ptr<Nic>> nics;
  std::string why = names.empty() ? "no RDMA device has an active port"
                                  : absl::StrCat("NCCL_IB_HCA=", names,
                                                 ": no RDMA device with an active port matches");
  for (const PortChoice& choice : ChoosePorts(devices, names)) {
    absl::StatusOr<std::shared_ptr<Nic>> nic = Nic::Open(driver.get(), choice.device, choice.port);
    if (nic.ok()) {
      (*nic)->WatchEvents();
      nics.push_back(*std::move(nic));
      continue;
    }
    why = std::string(nic.status().message());
    REWIRE_INFO("net plugin: RDMA device %s is not used: %s", choice.device.c_str(), why.c_str());
  }
  if (nics.empty()) return absl::NotFoundError(why);
  return nics;
}

ConnectionOptions OptionsFromSettings() {
  const Settings& s = Settings::Get();
  ConnectionOptions o;
  o.rail.queue_pairs = static_cast<uint32_t>(s.net_queue_pairs());
  o.rail.timeout = static_cast<uint8_t>(s.net_timeout());
  o.rail.retries = static_cast<uint8_t>(s.net_retries());
  o.rail.traffic_class = static_cast<uint8_t>(s.net_traffic_class());
  o.rail.service_level = static_cast<uint8_t>(s.net_service_level());
  o.rail.pkey_index = static_cast<uint16_t>(s.net_pkey());
  o.rail.gid_index = static_cast<int>(s.net_gid());
  if (s.net_adaptive() >= 0) o.rail.adaptive = s.net_adaptive() == 1;
  o.rail.apart = static_cast<size_t>(s.net_adaptive_bytes());
  return o;
}

}  // namespace rewire::net
