// Runs this program's members as a separate job with an agent (`rewire run`), and gathers their
// samples. Owned by one thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/overhead/member.h"
#include "reconfig/base/clock.h"

namespace rewire::bench {

struct JobOptions {
  uint32_t members = 2;
  bool simulated = true;
  Duration longest = seconds(600);
};

// Blocks until the job has ended. On failure the error has the end of the job's output.
absl::StatusOr<std::vector<Samples>> RunJob(const JobOptions& options, const MemberOptions& member);

}  // namespace rewire::bench
