// `./dev bench net --nccl`: measures two ranks on NCCL's own host code (docs/net.md), over the
// plugin and over NCCL's socket transport in turns. For the leader of net_perf, on its main thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/lib/report.h"

namespace rewire::bench {

struct NcclOptions {
  std::vector<std::string> folders;  // folders for OpenNccl(), each measured
  int64_t rounds = 4;                // rounds after each of several starts
};

[[nodiscard]] absl::Status MeasureNccl(const NcclOptions& options, Report* report);

}  // namespace rewire::bench
