// The counters of this process: librewire.so's own, and those of our other libraries, which give
// librewire.so a function that reads theirs (reconfig/base/counter_report.h).
#pragma once

#include <vector>

#include "reconfig/abi/counter_value.h"

namespace rewire::elastic {

// Returns the values other than 0. Thread-safe.
[[nodiscard]] std::vector<CounterValue> ProcessCounters();

}  // namespace rewire::elastic

// Adds another library's counters (rewire::AddCounters).
extern "C" void rewire_add_counters(rewire::ReadCounters read) noexcept;
