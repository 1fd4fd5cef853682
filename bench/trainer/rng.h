// Random numbers by counter: a pure function of (seed, step, sample, layer, op, element), without
// state. Every member, in any world, draws the same numbers for a sample. Thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "reconfig/base/hash.h"

namespace rewire::trainer {

class RandomKey {
 public:
  RandomKey(uint64_t seed, std::initializer_list<uint64_t> path) : key_(MixWord(seed, 0)) {
    for (const uint64_t part : path) key_ = MixWord(key_, part);
  }
  [[nodiscard]] RandomKey Child(uint64_t part) const { return RandomKey(MixWord(key_, part)); }

  [[nodiscard]] uint64_t Bits(uint64_t element) const { return MixWord(key_, element); }
  // Returns a value in [0, 1), a multiple of 2^-24.
  [[nodiscard]] double Uniform(uint64_t element) const {
    return static_cast<double>(Bits(element) >> 40) * 0x1p-24;
  }
  [[nodiscard]] double Normal(uint64_t element) const {
    const double radius = std::sqrt(-2 * std::log(Uniform(2 * element) + 0x1p-25));
    return radius * std::cos(2 * M_PI * Uniform(2 * element + 1));
  }

 private:
  explicit RandomKey(uint64_t key) : key_(key) {}
  uint64_t key_;
};

}  // namespace rewire::trainer
