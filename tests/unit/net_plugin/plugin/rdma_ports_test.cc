#include "net_plugin/plugin/rdma_ports.h"

#include <gtest/gtest.h>

namespace rewire::net {
namespace {

std::vector<rdma::DeviceInfo> Machine() {
  std::vector<rdma::DeviceInfo> devices;
  for (const char* name : {"mlx5_0", "mlx5_1", "mlx5_10", "rxe0"}) {
    rdma::DeviceInfo& d = devices.emplace_back();
    d.name = name;
    for (uint8_t number : {1, 2}) {
      rdma::PortInfo& p = d.ports.emplace_back();
      p.number = number;
      // On most devices the second port has no cable.
      if (number == 1 || d.name == "mlx5_0") p.state = rdma::PortState::kActive;
    }
  }
  return devices;
}

std::string Chosen(std::string_view names) {
  std::string out;
  for (const PortChoice& c : ChoosePorts(Machine(), names)) {
    out += c.device + ":" + std::to_string(c.port.number) + " ";
  }
  return out;
}

TEST(PortChoiceTest, FollowsNcclsRules) {
  EXPECT_EQ(Chosen(""), "mlx5_0:1 mlx5_0:2 mlx5_1:1 mlx5_10:1 rxe0:1 ");
  EXPECT_EQ(Chosen("mlx5_1"), "mlx5_1:1 mlx5_10:1 ");
  EXPECT_EQ(Chosen("=mlx5_1"), "mlx5_1:1 ");
  EXPECT_EQ(Chosen("mlx5_0:2,rxe"), "mlx5_0:2 rxe0:1 ");
  EXPECT_EQ(Chosen("^mlx5"), "rxe0:1 ");
  EXPECT_EQ(Chosen("^=mlx5_1,mlx5_0:1"), "mlx5_0:2 mlx5_10:1 rxe0:1 ");
  EXPECT_EQ(Chosen("=mlx5_1:2"), "");
  EXPECT_EQ(Chosen("bnxt"), "");
}

}  // namespace
}  // namespace rewire::net
