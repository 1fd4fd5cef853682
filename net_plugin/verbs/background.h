// Threads of the process's own for what may take long. Made at the first use; they live as long as
// the process. Any thread.
#pragma once

#include <functional>

namespace rewire::net {

// Device commands, begun in this order: on Ethernet a queue pair is connected only when the peer's
// address has been resolved, up to seconds if nobody answers.
void RunInBackground(std::function<void()> work);
// Copies of device memory, one after the other: they do not wait for those.
void RunCopy(std::function<void()> work);

}  // namespace rewire::net
