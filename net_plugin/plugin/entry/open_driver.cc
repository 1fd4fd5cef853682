// Opens ibverbs for the core. A file of its own, so that tests can link a fake instead. Called
// once, when the plugin starts.
#include "net_plugin/plugin/rdma_ports.h"
#include "reconfig/rdma/driver.h"

namespace rewire::net {

absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver() { return rdma::LoadVerbs(); }

}  // namespace rewire::net
