// The simulator's only source of randomness: the same seed gives the same run, on every machine.
// Thread-compatible.
#pragma once

#include <cstdint>

#include "reconfig/base/clock.h"
#include "reconfig/base/hash.h"

namespace rewire::sim {

class SeededRandom {
 public:
  explicit SeededRandom(uint64_t seed) : seed_(MixWord(seed, 0x5eed)) {}
  uint64_t Next() { return MixWord(seed_, ++count_); }
  // Returns a number below n; n must not be 0.
  uint64_t Below(uint64_t n) { return Next() % n; }
  // Returns true with probability 1/n.
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  Duration Between(Duration low, Duration high) {
    return low + nanoseconds(Below(static_cast<uint64_t>(ToNanoseconds(high - low)) + 1));
  }

 private:
  uint64_t seed_;
  uint64_t count_ = 0;
};

}  // namespace rewire::sim
