// One micro-batch of one mixture-of-experts layer, as the devices of a node see it when the router
// has counted, and what is to be moved between them. Plans are pure functions of it in integers,
// ties by lowest number, so that every rank derives the same plan without asking. Any thread.
//
// Terms: the owner of an expert is the device that keeps its weights; dynamic experts are those
// whose weights and tokens may go to another device, a helper, for this micro-batch (FEPLB,
// arXiv 2604.19654).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace rewire::moe {

struct Batch {
  uint32_t devices = 0;
  // Of each expert, all three of the same length.
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> owner;   // below `devices`
  std::vector<uint8_t> dynamic;  // 1: may be moved
};
// Names the first entry that cannot be.
[[nodiscard]] absl::Status Check(const Batch& batch);

// `to` computes tokens [first, first + tokens) of the expert, counted in the order in which its
// owner has them. The owner keeps those that no move names.
struct Move {
  uint32_t expert = 0;
  uint32_t to = 0;
  uint32_t first = 0;
  uint32_t tokens = 0;
  friend bool operator==(const Move&, const Move&) = default;
};

// Every move is one copy of an expert's weights and of its tokens. In the order in which the copies
// are to be made.
using MovePlan = std::vector<Move>;

// What may be spent on one micro-batch.
struct Budget {
  uint32_t copies = UINT32_MAX;  // of experts' weights, all devices together
  uint32_t slots = 8;            // of them that one device has room for
};

// Tokens that each device computes.
[[nodiscard]] std::vector<uint64_t> Loads(const Batch& batch);
[[nodiscard]] std::vector<uint64_t> Loads(const Batch& batch, const MovePlan& plan);
// Different moves of dynamic experts only, within what the expert has and what the budget allows,
// none to the owner; names what is wrong.
[[nodiscard]] absl::Status Check(const Batch& batch, const MovePlan& plan, const Budget& budget);
// For ranks to compare.
[[nodiscard]] uint64_t Hash(const MovePlan& plan);

// The busiest device's load above the mean (FEPLB's token straggler), in tokens rounded down.
[[nodiscard]] uint64_t Straggler(std::span<const uint64_t> loads);

}  // namespace rewire::moe
