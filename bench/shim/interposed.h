// Counts what a stretch of code allocates and locks, in the whole process: this program's malloc
// and pthread_mutex_lock stand in front of libc's, for the libraries that it loads as well.
#pragma once

#include <cstdint>

namespace rewire::bench {

struct Counted {
  uint64_t allocations = 0;
  uint64_t locks = 0;
};

// Before anything is counted; false when libc's functions were not found.
bool PrepareCounting();
void StartCounting();
Counted StopCounting();

}  // namespace rewire::bench
