// What the processes of a node that balance an expert-parallel layer between them must agree on.
// Plain values; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace rewire::moe {

inline constexpr uint32_t kMaxRanks = 16;
inline constexpr uint32_t kMaxExperts = 256;  // of one device
inline constexpr uint32_t kMaxSlots = 16;

// Device memory: slots * (weight_bytes + 2 * grad_bytes) + 4 * rows * token_bytes in each process,
// allocated once and used by every layer in turn.
struct Shape {
  uint32_t experts = 0;       // that each device owns: 1..kMaxExperts
  uint64_t weight_bytes = 0;  // of one expert
  uint64_t grad_bytes = 0;    // of one expert's weight gradients; 0: there is no backward
  uint64_t token_bytes = 0;   // of one row, in and out
  uint32_t slots = 8;         // moved experts that one device has room for: 1..kMaxSlots
  uint32_t rows = 0;          // moved tokens that one device has room for
  // Experts of each device that may be moved: 1..experts. More, where these hold less than half of
  // the device's tokens in a micro-batch (dynamic_experts.h).
  uint32_t dynamic = 4;
  // While the busiest device has no more than so many percent of the mean nothing is moved: 100...
  uint32_t gate_percent = 105;
  // A copy is for so many tokens at least.
  uint32_t least = 1;
};

struct NodeGroup {
  // Unlike any other's on this machine, now or before: made from what the processes share, such as
  // the communicator's unique id and the epoch. Letters, digits, '-' and '_'.
  std::string name;
  uint32_t rank = 0;
  uint32_t ranks = 0;  // 2..kMaxRanks
};

// Names the member, its value and its range.
[[nodiscard]] absl::Status Check(const Shape& shape);
[[nodiscard]] absl::Status Check(const NodeGroup& group);
// For processes to compare: of every member.
[[nodiscard]] uint64_t Fingerprint(const Shape& shape, uint32_t ranks);

}  // namespace rewire::moe
