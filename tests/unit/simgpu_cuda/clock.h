// The child's scenarios for virtual time. Owned by the main thread.
#pragma once

namespace simgpu_test {

// Prints the times of a copy of 100,000 bytes, of a kernel of 250 us, and of a stream that waits
// for both.
int Clock();
// Prints the handle of a word, waits until the word is 7, and prints its stream's virtual time.
int ClockWait();
// Runs a kernel of 123 us and a peer copy of 64 bytes, then writes 7 to the word of that handle.
int ClockWrite(const char* handle);

}  // namespace simgpu_test
