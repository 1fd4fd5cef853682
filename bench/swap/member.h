// One member process of the benchmark: the shim, the core and a simulated (or real) NCCL, a thread
// that runs the workload and one that does what a participant does.
#pragma once

#include <cstdint>

namespace rewire::bench {

struct MemberOptions {
  int fd = -1;  // to the leader
  uint32_t ranks = 2;
  uint32_t rank = 0;
  uint32_t baselines = 8;  // foreground changes measured of each kind
};

// The process's exit status.
int RunMember(const MemberOptions& options);

}  // namespace rewire::bench
