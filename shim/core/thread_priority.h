// Sets the niceness of single threads, and of the threads that NCCL makes during a build.
//
// A builder runs at low priority so that it does not disturb training. Niceness is inherited, so
// the service and progress threads that NCCL starts from the builder would stay slow for ever.
// Linux only. For builder threads and WorkQueue; thread-safe.
#pragma once

#include <sys/types.h>

#include <set>

namespace rewire::shim {

// Sets and gets the niceness of the calling thread alone.
void SetOwnNiceness(int nice);
int OwnNiceness();

// Returns the ids of all threads of this process.
std::set<pid_t> ThreadIds();

// Gives `niceness` to every thread that is not in `before`, is not the caller and has the caller's
// niceness. Returns the number of changed threads. Raising priority needs RLIMIT_NICE or
// CAP_SYS_NICE: a thread without permission keeps its niceness and counts in *refused.
int RestoreNicenessOfNewThreads(const std::set<pid_t>& before, int niceness, int* refused);

}  // namespace rewire::shim
