// Niceness of single threads, and of the threads that NCCL makes while we build.
//
// A builder runs at low priority so that it does not disturb training, but niceness is inherited:
// the service and progress threads that NCCL starts from it would stay slow for ever. Linux only;
// called from builder threads.
#pragma once

#include <sys/types.h>

#include <set>

namespace rewire::shim {

// Of the calling thread alone.
void SetOwnNiceness(int nice);
int OwnNiceness();

// The ids of all threads of this process.
std::set<pid_t> ThreadIds();

// Gives `niceness` to every thread that is not in `before`, is not the caller and has the caller's
// niceness. Returns how many there were. Raising priority needs RLIMIT_NICE or CAP_SYS_NICE: what
// is not permitted stays and is counted in *refused.
int RestoreNicenessOfNewThreads(const std::set<pid_t>& before, int niceness, int* refused);

}  // namespace rewire::shim
