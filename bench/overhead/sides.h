// The two ways from the trainer's NCCL calls to NCCL, in one process: straight to the library, and
// through Rewire's shim. The program itself defines the functions that the trainer calls; each is
// one jump through a pointer, on either side alike. One thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace rewire::bench {

enum class Side { kPlain, kRewire };

// Finds both. Fails where the shim is not in this process, or both are the same library.
absl::Status FindSides();
// From now on the trainer's calls go there. A communicator belongs to the side it was made on.
void Take(Side side);
// The file that a side's functions are in.
[[nodiscard]] std::string FileOf(Side side);

}  // namespace rewire::bench
