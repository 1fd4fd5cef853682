// Sums over the loads of a plan's devices, for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

namespace rewire::moe {

inline uint64_t Sum(const std::vector<uint64_t>& loads) {
  return std::accumulate(loads.begin(), loads.end(), uint64_t{0});
}
inline uint64_t Most(const std::vector<uint64_t>& loads) {
  return *std::max_element(loads.begin(), loads.end());
}

}  // namespace rewire::moe
