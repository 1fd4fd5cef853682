// The devices that the plugin's core finds in this process: two, on one switch, that land what they
// write by whole cache lines, as hosts do.
#include "net_plugin/core/open_driver.h"
#include "tests/fakes/rdma/fabric.h"

namespace rewire::net {

absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver() {
  rdma::fake::FabricOptions options;
  options.landing_unit = 64;
  static auto* const fabric = [&] {
    auto* const made = new rdma::fake::Fabric(options);
    made->AddDevice({"fake0"});
    made->AddDevice({"fake1"});
    return made;
  }();
  return fabric->MakeDriver({"fake0", "fake1"});
}

}  // namespace rewire::net
