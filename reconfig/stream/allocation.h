// The allocation of the driver's in which registered device memory lies: memory that was freed, or
// allocated anew at the same address, is no longer the program's tensor. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "reconfig/stream/state_memory.h"

namespace rewire {

// Unique in this process, also over time. 0: host memory, memory that is no allocation, or memory
// of which the driver knows no number (mapped piece by piece).
uint64_t AllocationOf(const StatePlace& place);

// An error when the place lay in this allocation and does so no longer; 0: unknown.
absl::Status CheckAllocation(std::string_view tensor, const StatePlace& place, uint64_t allocation);

}  // namespace rewire
