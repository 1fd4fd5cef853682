// One micro-batch of one mixture-of-experts layer, as the devices of a node see the batch after the
// router has counted, and the moves between these devices. Plans are pure integer functions of the
// batch, with ties to the lowest number, so every rank derives the same plan without a message.
// Thread-safe functions; values are thread-compatible.
//
// Terms: the owner of an expert is the device that keeps the expert's weights. A dynamic expert's
// weights and tokens may go to another device, a helper, for this micro-batch (FEPLB, arXiv
// 2604.19654).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"

namespace rewire::moe {

struct Batch {
  uint32_t devices = 0;
  // One entry per expert; the three vectors have the same length.
  std::vector<uint32_t> tokens;
  std::vector<uint32_t> owner;   // below `devices`
  std::vector<uint8_t> dynamic;  // 1: may be moved
};
// An error names the first invalid entry.
[[nodiscard]] absl::Status Check(const Batch& batch);

// Chooses the experts of a device that may be moved in a micro-batch: those with most tokens in it.
// The host knows the counts before the GEMMs begin, so the choice needs no history. Loads that
// shift between micro-batches are balanced at once. tokens: one count per own expert. The result is
// 1 for the `least` experts with most tokens. More experts are marked until the marked experts hold
// half of all tokens. A device with twice the mean load can then reach the mean. Ties go to the
// lowest number.
[[nodiscard]] std::vector<uint8_t> ChooseDynamic(std::span<const uint32_t> tokens, uint32_t least);

// `to` computes tokens [first, first + tokens) of the expert, counted in the owner's order. The
// owner keeps the tokens that no move names.
struct Move {
  uint32_t expert = 0;
  uint32_t to = 0;
  uint32_t first = 0;
  uint32_t tokens = 0;
  friend bool operator==(const Move&, const Move&) = default;
};

// A move is one copy of an expert's weights and tokens; copies are made in the plan's order.
using MovePlan = std::vector<Move>;

// Limits on the moves of one micro-batch.
struct Budget {
  uint32_t copies = UINT32_MAX;  // copies of experts' weights, all devices together
  uint32_t slots = 8;            // moved experts that one device has room for
};

// Returns the number of tokens that each device computes.
[[nodiscard]] std::vector<uint64_t> Loads(const Batch& batch);
[[nodiscard]] std::vector<uint64_t> Loads(const Batch& batch, const MovePlan& plan);
// Checks that moves are distinct, move only dynamic experts, stay within the expert's tokens and
// the budget, and never go to the owner. An error names the offending move.
[[nodiscard]] absl::Status Check(const Batch& batch, const MovePlan& plan, const Budget& budget);
// Returns a hash with which ranks compare plans.
[[nodiscard]] uint64_t Hash(const MovePlan& plan);

// Returns the busiest load above the mean (FEPLB's token straggler), in tokens rounded down.
[[nodiscard]] uint64_t Straggler(std::span<const uint64_t> loads);

}  // namespace rewire::moe
