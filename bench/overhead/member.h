// One member of the job that the benchmark starts: attaches, measures, leaves its samples in a
// file.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "bench/overhead/samples.h"

namespace rewire::bench {

struct MemberOptions {
  std::string task;  // steps, updates
  std::string out;   // the member's rank is appended
  // steps
  uint64_t rounds = 0;
  int zero = 0;
  // Steps that go one way before the next; the first of a block is not counted when there are more,
  // because work that Rewire does in the background begins in it, or still goes on.
  uint64_t block = 1;
  // updates
  uint64_t updates = 0;
  std::string tensors = "none";  // none, constant, volatile
};

// The process's exit status.
int RunMember(const MemberOptions& options);

// steps.cc: a GPT is trained; its steps go in turn with and without Rewire.
absl::StatusOr<Samples> MeasureSteps(const MemberOptions& options);
// updates.cc: rewireUpdate() alone, in a job with a live agent and registered tensors.
absl::StatusOr<Samples> MeasureUpdates(const MemberOptions& options);

}  // namespace rewire::bench
