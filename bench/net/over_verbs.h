// `./dev bench net --transport=verbs`: compares the plugin with perftest's programs, in turns,
// between the first two RDMA devices of tests/rdma_vm's machine. For both main threads of net_perf.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "bench/lib/report.h"
#include "bench/net/control.h"

namespace rewire::bench {

struct VerbsOptions {
  // Pairs of measurements: the plugin's and perftest's. Two emulated processors change between a
  // fast and a slow state that lasts seconds, and a median of few pairs compares one with the
  // other.
  int64_t pairs = 33;
  int64_t messages = 400;  // messages of 64 KiB
  int64_t pings = 500;     // round trips of 8 bytes
  int64_t seconds = 240;   // seconds after which no other pair begins
};

// Sets the environment of the plugin, before the plugin is opened. Fails outside the machine.
[[nodiscard]] absl::Status PrepareVerbs();
// Adds the figures to the leader's report.
[[nodiscard]] absl::Status MeasureVerbs(const Control& control, const VerbsOptions& options,
                                        Report* report);

}  // namespace rewire::bench
