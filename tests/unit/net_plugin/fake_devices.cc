// The devices that the plugin's core finds in this process: two devices on one switch. Their writes
// land in whole cache lines, as on hosts.
#include "tests/unit/net_plugin/fake_devices.h"

#include "net_plugin/plugin/rdma_ports.h"

namespace rewire::net {

rdma::fake::Fabric& FakeFabric() {
  static auto* const fabric = [] {
    rdma::fake::FabricOptions options;
    options.landing_unit = 64;
    auto* const made = new rdma::fake::Fabric(options);
    made->AddDevice({"fake0"});
    made->AddDevice({"fake1"});
    return made;
  }();
  return *fabric;
}

absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver() {
  return FakeFabric().MakeDriver({"fake0", "fake1"});
}

}  // namespace rewire::net
