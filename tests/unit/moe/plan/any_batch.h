// Generators of batches of all shapes and skews, for properties. Owned by the property's thread.
#pragma once

#include <rapidcheck.h>

#include "reconfig/moe/plan/batch.h"

namespace rewire::moe {

inline Batch AnyBatch() {
  Batch batch;
  batch.devices = *rc::gen::inRange<uint32_t>(1, 10);
  const auto experts = *rc::gen::inRange<size_t>(0, 70);
  const auto most = *rc::gen::element<uint32_t>(1, 3, 100, 30'000, 1U << 30);
  batch.tokens = *rc::gen::container<std::vector<uint32_t>>(
      experts, rc::gen::oneOf(rc::gen::just(0U), rc::gen::inRange<uint32_t>(0, most),
                              rc::gen::inRange<uint32_t>(0, most / 8 + 1)));
  batch.owner = *rc::gen::container<std::vector<uint32_t>>(
      experts, rc::gen::inRange<uint32_t>(0, batch.devices));
  batch.dynamic =
      *rc::gen::container<std::vector<uint8_t>>(experts, rc::gen::element<uint8_t>(0, 1, 1));
  return batch;
}

inline Budget AnyBudget() {
  return {*rc::gen::inRange<uint32_t>(0, 12), *rc::gen::inRange<uint32_t>(0, 9)};
}

}  // namespace rewire::moe
