// The child's scenarios about virtual time.
#pragma once

namespace simgpu_test {

// Prints what a copy of 100,000 bytes and a kernel of 250 us take, and a stream that waits for
// both.
int Clock();
// Prints the handle of a word, waits for it to be 7, prints its stream's virtual time.
int ClockWait();
// A kernel of 123 us, a peer copy of 64 bytes, then 7 to the word of that handle.
int ClockWrite(const char* handle);

}  // namespace simgpu_test
