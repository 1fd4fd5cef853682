// Generators of placements of all shapes: empty slots, experts in several slots of a device or
// node. Owned by the property's thread.
#pragma once

#include <rapidcheck.h>

#include <algorithm>

#include "reconfig/moe/plan/placement.h"

namespace rewire::moe::fsep {

struct AnyPlacement {
  Topology topology;
  uint32_t experts = 0;
  Placement placement;
};

inline AnyPlacement MakeAnyPlacement() {
  AnyPlacement any;
  any.topology = {*rc::gen::inRange(1u, 5u), *rc::gen::inRange(1u, 9u)};
  any.placement.capacity = *rc::gen::inRange(1u, 4u);
  const uint32_t slots = any.topology.devices() * any.placement.capacity;
  any.experts = *rc::gen::inRange(1u, slots + 1);
  for (uint32_t s = 0; s < slots; ++s) {
    const bool empty = s >= any.experts && *rc::gen::inRange(0, 8) == 0;
    any.placement.slots.push_back(s < any.experts ? s
                                  : empty         ? kEmptySlot
                                                  : *rc::gen::inRange(0u, any.experts));
  }
  // Any permutation, drawn number by number, so that a failing case shrinks.
  for (uint32_t s = slots; s > 1; --s) {
    std::swap(any.placement.slots[s - 1], any.placement.slots[*rc::gen::inRange(0u, s)]);
  }
  return any;
}

}  // namespace rewire::moe::fsep
