// Starts a world of tensors that are divided as rewireRegisterTensor() says. For tests.
#pragma once

#include <utility>
#include <vector>

#include "reconfig/state/plan/data_parallel.h"
#include "reconfig/state/snapshot/snapshotter.h"

namespace rewire::state {

inline ParallelLayout LayoutOf(const std::vector<PlacedTensor>& tensors, size_t slots) {
  std::vector<TensorShape> shapes;
  for (const PlacedTensor& tensor : tensors) shapes.push_back(tensor.shape);
  return *DataParallel(shapes, static_cast<uint32_t>(slots));
}

inline void StartWorld(Snapshotter* snapshotter, const World& world, const Key& secret,
                       uint32_t slot, std::vector<PlacedTensor> tensors) {
  const ParallelLayout layout = LayoutOf(tensors, world.members.size());
  snapshotter->StartWorld(world, secret, slot, layout, std::move(tensors));
}

}  // namespace rewire::state
