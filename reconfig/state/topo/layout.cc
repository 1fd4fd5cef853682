// Computes the division of tensors; see layout.h. Pure.
#include "reconfig/state/topo/layout.h"

namespace rewire::state {

Box ShardOf(uint64_t elements, uint32_t slots, uint32_t slot) {
  if (slots == 0 || slot >= slots) return {};
  const uint64_t chunk = elements / slots + (elements % slots != 0 ? 1 : 0);
  // chunk * slot can overflow only if slot 1 begins past the end.
  const uint64_t begin = chunk != 0 && slot > elements / chunk ? elements : chunk * slot;
  return {std::min(begin, elements), begin + std::min(chunk, elements - std::min(begin, elements))};
}

Box PartOf(const TensorShape& tensor, uint32_t slots, uint32_t slot) {
  if (slot >= slots) return {};
  if (tensor.division == Division::kReplicated) return {0, tensor.elements};
  return ShardOf(tensor.elements, slots, slot);
}

}  // namespace rewire::state
