// Which ports of this machine's RDMA devices carry traffic, by NCCL's rules: NCCL_IB_HCA ("mlx5_0,
// mlx5_1:1": devices whose names begin so, and ports of them; "=mlx5_0": exactly; "^": none of
// these). Pure.
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

// Those that have a link, in the library's order.
std::vector<PortChoice> ChoosePorts(std::span<const rdma::DeviceInfo> devices,
                                    std::string_view names);

}  // namespace rewire::net
