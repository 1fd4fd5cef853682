// The child's scenarios with physical memory whose descriptor goes through the socket that is its
// descriptor 3. They return the first result that is not success, or 99.
#pragma once

namespace simgpu_test {

// Sends memory with "hello" in it, and drops all that it has of it.
int Share();
// Receives memory, drops the descriptor, finds "hello", leaves "world", says so on stdout and keeps
// the memory mapped until stdin ends.
int Attach();

}  // namespace simgpu_test
