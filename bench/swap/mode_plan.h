// The work of the ranks of `./dev bench swap` in each mode: communicators, the threads that use
// them, and their operations. Pure; thread-compatible.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "bench/storm/script.h"

namespace rewire::bench {

struct LanePlan {
  uint32_t number = 0;     // names the communicator
  std::vector<int> ranks;  // ranks of the job, by rank in the communicator
  bool nonblocking = false;
  int streams = 1;      // the operations go round these streams
  uint64_t period = 1;  // steps from one operation to the next
  // Operations after which the program destroys the communicator and makes another. 0: never.
  uint64_t life = 0;
  std::vector<StepKind> kinds;
  // Each operation is awaited and its time recorded; all have one size. Only for blocking
  // communicators with one rank in a process, because a group must end before it is awaited.
  bool timed = false;
};

struct ModePlan {
  int ranks_per_process = 1;
  // The communicators of each thread. The first of a thread has all ranks and also carries the
  // thread's votes.
  std::vector<std::vector<LanePlan>> threads;
};

// processes: at least 2. Returns nullopt for an unknown mode.
std::optional<ModePlan> PlanOf(std::string_view mode, int processes);

}  // namespace rewire::bench
