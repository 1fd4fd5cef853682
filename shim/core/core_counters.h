// The core's counters, which are part of the process's (reconfig/base/counters.h), and for tests.
// Thread-safe.
#pragma once

#include "reconfig/base/counters.h"

namespace rewire::shim {

struct CoreCounters {
  Counted swaps{Counter::kShimSwaps};
  Counted stale_prevented{Counter::kShimStalePrevented};
  Counted host_waits{Counter::kShimHostWaits};
  Counted builds{Counter::kShimBuilds};
  Counted failed_builds{Counter::kShimFailedBuilds};
  Counted build_ns{Counter::kShimBuildTime};
  Counted warmed_classes{Counter::kShimWarmedClasses};
  Counted warmed_beside{Counter::kShimWarmedBeside};
  Counted beside_refused{Counter::kShimBesideRefused};
  Counted retired{Counter::kShimRetired};
  Counted aborted{Counter::kShimAborted};
  Counted nice_refused{Counter::kShimNiceRefused};
};

}  // namespace rewire::shim
