// The parameters on which the processes of a node must agree to balance an expert-parallel layer.
// Plain values: thread-compatible; the functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rewire::moe {

inline constexpr uint32_t kMaxRanks = 16;
inline constexpr uint32_t kMaxExperts = 256;  // experts of one device
inline constexpr uint32_t kMaxSlots = 16;

// Each process allocates slots * (weight_bytes + 2 * grad_bytes) + 4 * rows * token_bytes of device
// memory once; every layer in turn uses the memory.
struct Shape {
  uint32_t experts = 0;       // experts that each device owns: 1..kMaxExperts
  uint64_t weight_bytes = 0;  // bytes of one expert's weights
  uint64_t grad_bytes = 0;    // bytes of one expert's weight gradients; 0: no backward
  uint64_t token_bytes = 0;   // bytes of one row, in and out
  uint32_t slots = 8;         // moved experts that one device has room for: 1..kMaxSlots
  uint32_t rows = 0;          // moved tokens that one device has room for
  // Experts of each device that may be moved: 1..experts. More are movable if these hold less than
  // half of the device's tokens in a micro-batch (ChooseDynamic, reconfig/moe/plan).
  uint32_t dynamic = 4;
  // Nothing is moved while the busiest device's load is at most this percentage of the mean: 100...
  uint32_t gate_percent = 105;
  // Fewest tokens of a copy.
  uint32_t least = 1;
};

struct NodeGroup {
  // The name is unique on this machine for all time: derive it from what the processes share, such
  // as the communicator's unique id and the epoch. Letters, digits, '-' and '_'.
  std::string name;
  uint32_t rank = 0;
  uint32_t ranks = 0;  // 2..kMaxRanks
};

// An error names the member, its value and its range.
[[nodiscard]] absl::Status Check(const Shape& shape);
[[nodiscard]] absl::Status Check(const NodeGroup& group);
// Returns a hash of all members with which processes compare shapes.
[[nodiscard]] uint64_t Fingerprint(const Shape& shape, uint32_t ranks);

}  // namespace rewire::moe
