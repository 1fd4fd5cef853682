// Opens the RDMA devices for the core. The header is separate so that tests can link a fake.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "reconfig/rdma/driver.h"

namespace rewire::net {

// Returns NotFound if this machine has none.
absl::StatusOr<std::unique_ptr<rdma::Driver>> OpenDriver();

}  // namespace rewire::net
