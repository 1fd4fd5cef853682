// The child's scenarios with physical memory whose descriptor is sent through a socket, the child's
// descriptor 3. They return the first result that is not success, or 99. Owned by the main thread.
#pragma once

namespace simgpu_test {

// Sends memory with "hello" in it, and drops all references to it.
int Share();
// Receives memory, drops the descriptor, finds "hello" and leaves "world". Then reports this on
// stdout and keeps the memory mapped until stdin ends.
int Attach();

}  // namespace simgpu_test
