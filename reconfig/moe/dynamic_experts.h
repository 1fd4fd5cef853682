// Which experts of a device may be moved in a micro-batch: those with most tokens in it. The counts
// of the micro-batch are known on the host before anything is computed, so no history is needed,
// and loads that shift from one micro-batch to the next are evened out at once. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

// tokens: of each own expert. The result has 1 for the `least` experts with most tokens, and for
// more of them until they hold half of all tokens: then a device with twice the mean load can be
// brought down to the mean. Ties go to the lowest number.
[[nodiscard]] std::vector<uint8_t> ChooseDynamic(std::span<const uint32_t> tokens, uint32_t least);

}  // namespace rewire::moe
