// Counters of the net plugin in this process, if NCCL has loaded the plugin. The plugin is found by
// its name among the loaded libraries and never loaded from here.
#pragma once

#include <atomic>
#include <vector>

#include "reconfig/abi/counter_value.h"
#include "reconfig/abi/net_core.h"

namespace rewire {

class NetPlugin {
 public:
  // Looks whether the plugin is loaded. Waits for a thread that loads a library at this moment:
  // call it from threads that have just made a communicator, not from the member's thread.
  void Look();
  // Returns the counters since the process began; none before Look() has found the plugin.
  // Thread-safe.
  [[nodiscard]] std::vector<CounterValue> Counters() const;

 private:
  std::atomic<const net::NetTable*> table_{nullptr};
};

}  // namespace rewire
