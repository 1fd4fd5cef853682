// The expected contents of restored slots and reduced gradients, computed on the host from
// formulas: any rank can compute every rank's contents. Pure; thread-safe.
#pragma once

#include <vector>

#include "reconfig/base/hash.h"
#include "reconfig/moe/fsep/exchange.h"
#include "tests/simgpu/nccl/narrow_float.h"

namespace rewire::moe::fsep {

// Returns the gradient's element: a float's bits, or a bfloat16's.
inline uint32_t ToElement(Gradient type, float value) {
  return type == Gradient::kFloat32 ? std::bit_cast<uint32_t>(value)
                                    : simnccl::Bfloat16Format::FromFloat(value);
}
inline float ToFloat(Gradient type, uint32_t element) {
  return type == Gradient::kFloat32 ? std::bit_cast<float>(element)
                                    : simnccl::Bfloat16Format::ToFloat(element);
}

// Returns byte i of an expert's chunk.
inline uint8_t WeightByte(uint32_t layer, uint32_t expert, uint32_t chunk, uint64_t i) {
  return static_cast<uint8_t>(MixWord(layer << 16 | expert, uint64_t{chunk} << 40 | i));
}

// Returns values of such different magnitude that another order of addition gives another sum.
inline float AnyFloat(uint64_t key, uint64_t i) {
  const uint64_t bits = MixWord(key, i);
  const float value = static_cast<float>(static_cast<int32_t>(bits)) / 65536.0f;
  return value * static_cast<float>(1u << (bits >> 60));
}
// Return a slot's gradient as an element, and its owner's previous value.
inline uint32_t SlotElement(const Shape& shape, uint32_t layer, uint32_t device, uint32_t slot,
                            uint64_t i) {
  const uint64_t key = uint64_t{layer} << 32 | device << 8 | slot;
  return ToElement(shape.gradient, AnyFloat(key, i));
}
inline uint32_t ShardElement(const Shape& shape, uint32_t layer, uint32_t rank, uint64_t i) {
  return ToElement(shape.gradient, AnyFloat(uint64_t{layer} << 32 | 1u << 31 | rank, i));
}

// Adds from left to right and rounds once.
class RunningSum {
 public:
  void Add(Gradient type, uint32_t element) {
    value_ = empty_ ? ToFloat(type, element) : value_ + ToFloat(type, element);
    empty_ = false;
  }
  [[nodiscard]] bool empty() const { return empty_; }
  [[nodiscard]] uint32_t Element(Gradient type) const { return ToElement(type, value_); }

 private:
  float value_ = 0;
  bool empty_ = true;
};

// Returns element i of `chunk` of an expert after a reduction. `before` is increased by the sums of
// the nodes; a node's sum adds its devices, a device's its slots. slot_element(device, slot,
// element of the slot).
template <typename SlotElementFunction>
uint32_t ReducedElement(const Shape& shape, const Placement& placement, uint32_t expert,
                        uint32_t chunk, uint64_t i, uint32_t before,
                        const SlotElementFunction& slot_element) {
  const Gradient type = shape.gradient;
  RunningSum all;
  all.Add(type, before);
  for (uint32_t node = 0; node < shape.topology.nodes; ++node) {
    RunningSum of_node;
    for (uint32_t d = node * shape.topology.per_node; d < (node + 1) * shape.topology.per_node;
         ++d) {
      RunningSum of_device;
      for (uint32_t s = 0; s < placement.capacity; ++s) {
        if (placement.slots[d * placement.capacity + s] != expert) continue;
        of_device.Add(type, slot_element(d, s, chunk * shape.elements + i));
      }
      if (!of_device.empty()) of_node.Add(type, of_device.Element(type));
    }
    if (!of_node.empty()) all.Add(type, of_node.Element(type));
  }
  return all.Element(type);
}

}  // namespace rewire::moe::fsep
