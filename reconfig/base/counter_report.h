// Brings the counters of our libraries in one process together. Each library has its own copy of
// the totals (counters.h), and librewire.so sends all of them to the agent.
#pragma once

#include "reconfig/abi/counter_value.h"

namespace rewire {

// Gives the function, which belongs to another of our libraries, to librewire.so in the folder of
// that library. Loads librewire.so if the process has not loaded it yet. Has no effect in a process
// that is not a member of a job (REWIRE_SOCKET). Thread-safe. Waits while another thread loads a
// library.
void ReportCounters(ReadCounters read);

}  // namespace rewire
