// The value of one counter, as it crosses libraries and the wire. `number` is its row in
// reconfig/base/counters.def.
#pragma once

#include <cstdint>

namespace rewire {

struct CounterValue {
  uint16_t number = 0;
  uint64_t value = 0;
  bool operator==(const CounterValue&) const = default;
};

}  // namespace rewire
