// Counts the allocations and locks of a code section in the whole process. This program's malloc
// and pthread_mutex_lock interpose libc's, also for the libraries that it loads. Counting is
// thread-safe.
#pragma once

#include <cstdint>

namespace rewire::bench {

struct Counted {
  uint64_t allocations = 0;
  uint64_t locks = 0;
};

// Call before the first count. Returns false if libc's functions were not found.
bool PrepareCounting();
void StartCounting();
Counted StopCounting();

}  // namespace rewire::bench
