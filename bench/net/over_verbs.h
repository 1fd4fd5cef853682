// `./dev bench net --transport=verbs`: the plugin against perftest's programs, in turns, between
// the first two RDMA devices of tests/rdma_vm's machine. For both processes of net_perf.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "bench/lib/report.h"
#include "bench/net/control.h"

namespace rewire::bench {

struct VerbsOptions {
  int64_t pairs = 9;       // of measurements, ours and theirs
  int64_t messages = 400;  // of 64 KiB
  int64_t pings = 500;     // of 8 bytes
  int64_t seconds = 240;   // after which no other pair begins
};

// What the environment must say before the plugin is opened. Fails elsewhere than in the machine.
[[nodiscard]] absl::Status PrepareVerbs();
// The leader's report gets the figures.
[[nodiscard]] absl::Status MeasureVerbs(const Control& control, const VerbsOptions& options,
                                        Report* report);

}  // namespace rewire::bench
