// One member of the job that the benchmark starts: attaches, measures, and writes its samples to a
// file. Owned by the main thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/overhead/samples.h"

namespace rewire::bench {

struct MemberOptions {
  std::string task;  // steps, updates
  std::string out;   // the member's rank is appended
  // For the steps task.
  uint64_t rounds = 0;
  int zero = 0;
  // Number of consecutive steps of one way. If it is larger than one, the first step of each block
  // is not counted, because Rewire's background work may start in it or still run.
  uint64_t block = 1;
  // For the updates task.
  uint64_t updates = 0;
  std::string tensors = "none";  // none, constant, volatile
};

// Returns the process's exit status.
int RunMember(const MemberOptions& options);

// steps.cc: trains a GPT, whose steps alternate with and without Rewire.
absl::StatusOr<Samples> MeasureSteps(const MemberOptions& options);
// updates.cc: measures rewireUpdate() alone, in a job with a live agent and registered tensors.
absl::StatusOr<Samples> MeasureUpdates(const MemberOptions& options);

}  // namespace rewire::bench
