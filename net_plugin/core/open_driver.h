// Where the core gets its RDMA devices from. Declared apart, so that a test can put others under
// it.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "reconfig/rdma/driver.h"

namespace rewire::net {

// NotFound: there are none on this machine.
absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver();

}  // namespace rewire::net
