// The core's counters, for the agent's metrics and for tests. Thread-safe: written relaxed.
#pragma once

#include <atomic>
#include <cstdint>

namespace rewire::shim {

struct CoreCounters {
  std::atomic<uint64_t> swaps{0};            // communicators that went to the next generation
  std::atomic<uint64_t> stale_prevented{0};  // operations kept off the wrong generation
  std::atomic<uint64_t> host_waits{0};       // times an application's thread waited for a decision
  std::atomic<uint64_t> builds{0};           // generations built
  std::atomic<uint64_t> failed_builds{0};    // Build() calls that were refused or failed
  std::atomic<uint64_t> build_ns{0};         // time spent in generations built
  std::atomic<uint64_t> warmed_classes{0};   // operations simulated for warm-up
  std::atomic<uint64_t> warmed_beside{0};    // generations whose first operation ran in the build
  std::atomic<uint64_t> beside_refused{0};   // warm operations that stalled the program
  std::atomic<uint64_t> retired{0};          // generations destroyed in the background
  std::atomic<uint64_t> aborted{0};          // generations aborted: losses, deadlines, abandoned
  std::atomic<uint64_t> nice_refused{0};     // threads that kept the builder's low priority
};

}  // namespace rewire::shim
