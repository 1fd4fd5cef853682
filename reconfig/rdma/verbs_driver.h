// Opens the devices of this machine with libibverbs. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "reconfig/rdma/driver.h"

namespace rewire::rdma {

// NotFound if the library is not installed: a machine without RDMA is no fault.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Driver>> LoadVerbs(
    const std::string& library = "libibverbs.so.1");

}  // namespace rewire::rdma
