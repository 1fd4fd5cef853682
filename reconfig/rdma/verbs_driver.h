// The devices of this machine through libibverbs. Any thread.
#pragma once

#include <memory>
#include <string>

#include "reconfig/rdma/driver.h"

namespace rewire::rdma {

// NotFound when the library is not installed: this machine has no RDMA, which is no fault.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Driver>> LoadVerbs(
    const std::string& library = "libibverbs.so.1");

}  // namespace rewire::rdma
