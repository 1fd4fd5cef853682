// One member process of the benchmark: the shim, the core and a simulated (or real) NCCL. One
// thread runs the workload; another takes the participant's role.
#pragma once

#include <cstdint>

namespace rewire::bench {

struct MemberOptions {
  int fd = -1;  // socket to the leader
  uint32_t ranks = 2;
  uint32_t rank = 0;
  uint32_t baselines = 8;  // measured foreground changes of each kind
};

// Returns the process's exit status.
int RunMember(const MemberOptions& options);

}  // namespace rewire::bench
