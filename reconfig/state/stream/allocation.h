// Identifies the driver's allocation that contains registered device memory. Memory that was freed,
// or allocated again at the same address, is no longer the program's tensor. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::state {

// Returns a number that is unique in this process, also over time. 0: host memory, memory that is
// no allocation, or memory that has no number in the driver (mapped piece by piece).
uint64_t AllocationOf(const StatePlace& place);

// Fails when the place was in this allocation and no longer is. allocation 0: unknown, never fails.
absl::Status CheckAllocation(std::string_view tensor, const StatePlace& place, uint64_t allocation);

}  // namespace rewire::state
