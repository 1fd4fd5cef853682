// The process's threads for slow work, from their first use until the process ends. Thread-safe.
#pragma once

#include <functional>

namespace rewire::net {

// Starts device commands in the order of the calls. On Ethernet, connecting a queue pair waits
// until the peer's address is resolved: up to seconds if the peer does not answer.
void RunInBackground(std::function<void()> work);
// Runs copies of device memory one after another, on a thread of their own.
void RunCopy(std::function<void()> work);

}  // namespace rewire::net
