// Chooses the ports of this machine's RDMA devices that carry traffic, by NCCL's rules. NCCL_IB_HCA
// is "mlx5_0,mlx5_1:1" (prefixes of device names, optionally with a port), "=mlx5_0" (exact names)
// or "^" (all but these). Pure; thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reconfig/rdma/port.h"

namespace rewire::net {

struct PortChoice {
  std::string device;
  rdma::PortInfo port;
};

// Returns the selected ports that have a link, in the library's order.
std::vector<PortChoice> ChoosePorts(std::span<const rdma::DeviceInfo> devices,
                                    std::string_view names);

}  // namespace rewire::net
