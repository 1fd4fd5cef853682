// Counts the allocations and locks of code sections. This program's malloc and pthread_mutex_lock
// interpose libc's, also for the libraries that it loads. Thread-safe: each thread counts its own.
#pragma once

#include <cstdint>

namespace rewire::bench {

struct Counted {
  uint64_t allocations = 0;
  uint64_t locks = 0;
};

// Call before the first count. Returns false if libc's functions were not found.
bool PrepareCounting();
// Calls from this loaded library are not counted: the simulated driver locks where a driver may
// not.
void LeaveOut(const char* library);
void StartCounting();
Counted StopCounting();

}  // namespace rewire::bench
