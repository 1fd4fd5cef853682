// Devices and their nodes, for the plans of mixture-of-experts layers. A node's devices are
// consecutive. A value: thread-compatible.
#pragma once

#include <cstdint>

namespace rewire::moe {

struct Topology {
  uint32_t nodes = 1;
  uint32_t per_node = 8;  // devices of one node

  [[nodiscard]] uint32_t devices() const { return nodes * per_node; }
  friend bool operator==(const Topology&, const Topology&) = default;
};

}  // namespace rewire::moe
