// CPU time that Rewire spends beside the training thread: its threads in this process, and the
// processes that `rewire run` started besides the members. From /proc; any thread.
#pragma once

#include <cstdint>

namespace rewire::bench {

// Of the threads that Rewire has named (rewire-*, rw-*); and of this process's parent, the
// launcher, with those of its children whose name begins with its own (the agent). -1: it cannot be
// told.
int64_t RewireThreadsCpuNs();
int64_t RewireProcessesCpuNs();

}  // namespace rewire::bench
