// Generators of nodes of all shapes and skews, with some replicated experts, for properties. Owned
// by the property's thread.
#pragma once

#include <rapidcheck.h>

#include "reconfig/moe/plan/node_tokens.h"

namespace rewire::moe {

inline NodeTokens AnyNode() {
  NodeTokens node;
  node.devices = *rc::gen::inRange<uint32_t>(1, 10);
  node.experts = *rc::gen::inRange<uint32_t>(0, 20);
  const auto most = *rc::gen::element<uint32_t>(1, 3, 100, 30'000, 1U << 24);
  for (uint32_t i = 0; i < node.experts * node.devices; ++i) {
    const bool here = *rc::gen::inRange(0, 3) == 0;
    node.replicas.push_back(here ? 1 : 0);
    node.tokens.push_back(here ? *rc::gen::inRange<uint32_t>(0, most) : 0);
  }
  return node;
}

inline CopyBudget AnyCopyBudget() {
  return {*rc::gen::element<uint64_t>(0, 1000, 100'000, UINT64_MAX),
          *rc::gen::element<uint64_t>(0, 1, 5000, UINT64_MAX),
          *rc::gen::element<uint32_t>(0, 1, 8192), *rc::gen::inRange<uint32_t>(0, 9)};
}

}  // namespace rewire::moe
