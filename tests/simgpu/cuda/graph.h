// Graphs, which hold no work and cannot be launched, and the user objects that they retain: their
// destructors run when the last graph that holds them is destroyed. Guarded by the driver's lock.
#pragma once

#include <optional>
#include <vector>

#include "tests/simgpu/cuda/driver.h"

namespace simgpu {

struct UserObject {
  CUhostFn destroy = nullptr;
  void* argument = nullptr;
  unsigned references = 0;
};

// Runs the destructors of a graph's user objects. Such an object must end without the lock.
class GraphEnd {
 public:
  GraphEnd() = default;
  explicit GraphEnd(std::vector<UserObject> objects) : objects_(std::move(objects)) {}
  ~GraphEnd() {
    for (const UserObject& object : objects_) object.destroy(object.argument);
  }
  GraphEnd(GraphEnd&& other) noexcept { std::swap(objects_, other.objects_); }
  GraphEnd& operator=(GraphEnd&& other) noexcept {
    std::swap(objects_, other.objects_);
    return *this;
  }

 private:
  std::vector<UserObject> objects_;
};

[[nodiscard]] CUgraph NewGraph() REWIRE_REQUIRES(driver_mutex);
// Removes the graph. nullopt: there is no such graph.
[[nodiscard]] std::optional<GraphEnd> TakeGraph(CUgraph handle) REWIRE_REQUIRES(driver_mutex);

}  // namespace simgpu
