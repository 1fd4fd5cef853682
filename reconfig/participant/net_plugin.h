// The net plugin in this process, if NCCL has loaded it: found by its name among what is loaded,
// never loaded from here.
#pragma once

#include <atomic>

#include "net_plugin/core_abi.h"
#include "reconfig/transition/messages.h"

namespace rewire {

class NetPlugin {
 public:
  // Looks whether it is there by now. Waits for whoever loads a library at this moment: of threads
  // that have just made a communicator, not of the member's.
  void Look();
  // Since the process began; zeros before Look() has found it. Any thread.
  [[nodiscard]] NetCounts Counts() const;

 private:
  std::atomic<const net::NetTable*> table_{nullptr};
};

}  // namespace rewire
