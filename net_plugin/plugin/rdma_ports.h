// Chooses and opens this process's RDMA ports, by NCCL's rules and the REWIRE_NET_ settings.
// NCCL_IB_DISABLE=1 selects none. NCCL_IB_HCA is "mlx5_0,mlx5_1:1" (prefixes of device names,
// optionally with a port), "=mlx5_0" (exact names) or "^mlx5_0" (all but these). Net calls
// OpenPorts() and OptionsFromSettings() once, when the plugin starts. ChoosePorts() is pure;
// thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/verbs/connection_options.h"
#include "net_plugin/verbs/nic.h"
#include "reconfig/rdma/driver.h"
#include "reconfig/rdma/port.h"

namespace rewire::net {

struct PortChoice {
  std::string device;
  rdma::PortInfo port;
};

// Returns the selected ports that have a link, in the library's order.
std::vector<PortChoice> ChoosePorts(std::span<const rdma::DeviceInfo> devices,
                                    std::string_view names);
// Opens this machine's RDMA library; NotFound if there is none. net_plugin/plugin/entry has the
// definition, outside this library, so that tests can link a fake.
absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver();
// Returns at least one port, or the reason why none is usable.
absl::StatusOr<std::vector<std::shared_ptr<Nic>>> OpenPorts();
ConnectionOptions OptionsFromSettings();

}  // namespace rewire::net
