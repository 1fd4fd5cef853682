// Threads of the process's own for device commands that may take long: on Ethernet a queue pair is
// connected only when the peer's address has been resolved, up to seconds if nobody answers. Made
// at the first use; they live as long as the process. Any thread.
#pragma once

#include <functional>

namespace rewire::net {

// Begun in this order.
void RunInBackground(std::function<void()> work);

}  // namespace rewire::net
