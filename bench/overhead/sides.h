// The two ways from the trainer's NCCL calls to NCCL in one process: directly to the library, and
// through Rewire's shim. The program itself defines the functions that the trainer calls; on both
// sides each is one jump through a pointer. Owned by one thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace rewire::bench {

enum class Side { kPlain, kRewire };

// Finds both sides. Fails if the shim is not in this process, or if both are the same library.
absl::Status FindSides();
// Directs the trainer's calls to a side. A communicator belongs to the side on which it was made.
void Take(Side side);
// Returns the file that has a side's functions.
[[nodiscard]] std::string FileOf(Side side);

}  // namespace rewire::bench
