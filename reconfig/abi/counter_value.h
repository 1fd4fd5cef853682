// The value of one counter, as it crosses libraries and the wire, and how librewire.so reads the
// counters of our other libraries in the process (reconfig/base/counters.h).
#pragma once

#include <cstddef>
#include <cstdint>

namespace rewire {

struct CounterValue {
  uint16_t number = 0;  // its row in reconfig/base/counters.def
  uint64_t value = 0;
  bool operator==(const CounterValue&) const = default;
};

// Writes a library's counters other than 0, at most `room` of them, and returns their number.
// Thread-safe.
using ReadCounters = size_t (*)(CounterValue* out, size_t room);

// librewire.so's function that takes them, and its name. Thread-safe; a repetition has no effect.
using AddCounters = void (*)(ReadCounters read);
inline constexpr char kAddCountersSymbol[] = "rewire_add_counters";

}  // namespace rewire
