#include "net_plugin/plugin/open_driver.h"

#include "reconfig/rdma/driver.h"

namespace rewire::net {

absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver() { return rdma::LoadVerbs(); }

}  // namespace rewire::net
