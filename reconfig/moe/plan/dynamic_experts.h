// Chooses the experts of a device that may be moved in a micro-batch: those with most tokens in it.
// The host knows the counts before the GEMMs begin, so the choice needs no history. Loads that
// shift between micro-batches are balanced at once. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

// tokens: one count per own expert. The result is 1 for the `least` experts with most tokens. More
// experts are marked until the marked experts hold half of all tokens. A device with twice the mean
// load can then reach the mean. Ties go to the lowest number.
[[nodiscard]] std::vector<uint8_t> ChooseDynamic(std::span<const uint32_t> tokens, uint32_t least);

}  // namespace rewire::moe
