#include "net_plugin/plugin/rdma_ports.h"

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "net_plugin/plugin/open_driver.h"
#include "net_plugin/verbs/port_choice.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "reconfig/base/status_macros.h"

namespace rewire::net {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

absl::StatusOr<std::vector<std::shared_ptr<Nic>>> OpenPorts() {
  if (Variable("NCCL_IB_DISABLE") == "1") return absl::NotFoundError("NCCL_IB_DISABLE=1");
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<rdma::Driver> driver, OpenDriver());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<rdma::DeviceInfo> devices, driver->Devices());
  const std::string names = Variable("NCCL_IB_HCA");
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
