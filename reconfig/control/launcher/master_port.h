// Chooses MASTER_PORT for a job. Thread-safe.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

namespace rewire::control {

// Returns a port from [first, last] on which nobody listens; any free port if none is found.
//
// The program listens there some seconds later. Until then the kernel may give an ephemeral port to
// any process, such as another job's NCCL. By default these begin with 32768. The range ends below
// torchrun's 29500.
absl::StatusOr<uint16_t> ChooseMasterPort(uint16_t first = 20000, uint16_t last = 29499);

}  // namespace rewire::control
