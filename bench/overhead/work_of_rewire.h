// CPU time that Rewire spends outside the training thread: in its threads of this process, in the
// launcher (`rewire run`) and in the agent. Reads /proc. Thread-safe.
#pragma once

#include <cstdint>

namespace rewire::bench {

// Both return CPU time in nanoseconds, or -1 if /proc cannot be read. The threads are those named
// rewire-* or rw-*. The processes are the parent (the launcher) and its children whose name begins
// with the launcher's name (the agent).
int64_t RewireThreadsCpuNs();
int64_t RewireProcessesCpuNs();

}  // namespace rewire::bench
