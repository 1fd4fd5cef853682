// The operation that a thread of a benchmark's program is about to give to NCCL. The program
// exports the function; the spy (spy_nccl.cc) finds the function when it is loaded.
#pragma once

#include <cstdint>

namespace rewire::bench {

struct CurrentOperation {
  uint32_t communicator = 0;    // the program's number
  uint32_t rank = 0;            // in the communicator
  uint64_t index = 0;           // among the rank's operations on the communicator
  const void* input = nullptr;  // the program's buffers: Rewire's own operations use others
  const void* output = nullptr;
};

// The communicator of a record that says: a generation was made while another was destroyed.
inline constexpr uint32_t kMadeBesideDestroy = UINT32_MAX;

// One call of NCCL below Rewire, as a record in the spy's file. All ranks of a generation have the
// same `generation`; 0 is a generation that the program made without a unique id (a split).
struct SeenOperation {
  uint32_t communicator = 0;
  uint16_t rank = 0;
  uint16_t receives = 0;  // 1: ncclRecv, which follows the operation's ncclSend
  uint64_t index = 0;
  uint64_t generation = 0;
};

// Returns the operation of the calling thread.
extern "C" __attribute__((visibility("default"))) const CurrentOperation* swap_current_operation();

}  // namespace rewire::bench
