#include "reconfig/moe/exec/turns.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {

std::vector<Turn> TakeTurns(uint64_t at_once, std::span<const uint32_t> own_rows,
                            std::vector<Arrival> arrivals, uint64_t row) {
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  std::vector<Turn> turns;
  uint64_t now = at_once * row;
  std::vector<uint32_t> left(own_rows.size());  // own runs that are left, the largest first
  std::iota(left.begin(), left.end(), 0);
  std::stable_sort(left.begin(), left.end(),
                   [&](uint32_t a, uint32_t b) { return own_rows[a] > own_rows[b]; });
  const auto compute_own = [&](std::vector<uint32_t>::iterator own) {
    now += own_rows[*own] * row;
    turns.push_back({false, *own});
    left.erase(own);
  };
  for (const Arrival& arrival : arrivals) {
    while (!left.empty() && now < arrival.at) {
      const auto fits = std::find_if(left.begin(), left.end(), [&](uint32_t own) {
        return own_rows[own] * row <= arrival.at - now;
      });
      compute_own(fits != left.end() ? fits : left.end() - 1);
    }
    now = std::max(now, arrival.at) + arrival.rows * row;
    turns.push_back({true, arrival.index});
  }
  std::sort(left.begin(), left.end());
  while (!left.empty()) compute_own(left.begin());
  return turns;
}

}  // namespace rewire::moe
