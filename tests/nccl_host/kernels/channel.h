// Version differences in the memory that a kernel reads: the channel and the work of a collective.
// Both are read into structures that are the same for all NCCL versions. Pure; thread-safe.
#pragma once

#include <cstddef>

#include "tests/nccl_host/kernels/layout.h"

namespace nccl_host {

// The versions whose memory layout is known, by the number of ncclGetVersion.
constexpr int kOldestVersion = 22700;
constexpr int kNewestVersion = 23099;

// One channel as a kernel sees it. Valid until the communicator is destroyed.
struct Channel {
  Peer** peers = nullptr;
  int previous = -1, next = -1;     // in the ring
  const int* ring_ranks = nullptr;  // from this rank on
  int ring_index = 0;
  Tree tree{};
  uint64_t* work_counter = nullptr;
};

[[nodiscard]] Channel ReadChannel(const Communicator& communicator, int channel, int version);

struct CollectiveWork {
  int first_channel = 0, last_channel = 0;
  bool operand_is_pointer = false, profiled = false;
  int root = 0;
  char *receive = nullptr, *send = nullptr;
  // The parts of the first channel, of each middle channel and of the last channel, in elements and
  // in grains of the protocol.
  size_t count_first = 0, count_middle = 0, count_last = 0;
  uint64_t grains_first = 0, grains_middle = 0, grains_last = 0;
  uint64_t operand = 0;
};

// Returns the bytes of one work in a batch, and of its part that ReadCollective() reads.
[[nodiscard]] size_t WorkBytes(int work_type, int version);
[[nodiscard]] size_t WorkHeadBytes(int work_type, int version);
[[nodiscard]] CollectiveWork ReadCollective(const char* work, int version);

}  // namespace nccl_host
