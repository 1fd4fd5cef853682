// The contract suite on the fake, with several seeds, loss rates and kinds of links.
#include <string>

#include "tests/fakes/rdma/fabric.h"
#include "tests/unit/rdma_contract/stage.h"

namespace rewire::rdma {
namespace {

using fake::Fabric;
using fake::FabricOptions;

Ground OnFake(const std::string& name, uint64_t seed, uint32_t loss, LinkLayer link_layer,
              bool loopback) {
  Ground ground;
  ground.name = name;
  ground.left = "fake0";
  ground.right = loopback ? "fake0" : "fake1";
  ground.driver = [=]() -> absl::StatusOr<std::unique_ptr<Driver>> {
    FabricOptions options;
    options.seed = seed;
    options.poll_step = microseconds(5);
    Fabric fabric(options);
    for (const char* device : {"fake0", "fake1"}) {
      fabric.AddDevice({device, link_layer});
      fabric.SetLoss(device, loss);
    }
    return fabric.MakeDriver({"fake0", "fake1"});
  };
  return ground;
}

}  // namespace

std::vector<Ground> Grounds() {
  std::vector<Ground> grounds = {
      OnFake("Infiniband", 1, 0, LinkLayer::kInfiniBand, false),
      OnFake("Loopback", 2, 0, LinkLayer::kEthernet, true),
  };
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    grounds.push_back(
        OnFake("Ethernet" + std::to_string(seed), seed, 0, LinkLayer::kEthernet, false));
    grounds.push_back(
        OnFake("Lossy" + std::to_string(seed), seed, 5000, LinkLayer::kEthernet, false));
  }
  return grounds;
}

}  // namespace rewire::rdma
