#include "reconfig/moe/exec/turns.h"

#include <algorithm>

namespace rewire::moe {

std::vector<Turn> TakeTurns(uint64_t at_once, std::span<const uint32_t> own_rows,
                            std::vector<Arrival> arrivals, uint64_t row) {
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  std::vector<Turn> turns;
  uint64_t now = at_once * row;
  uint32_t next = 0;
  const auto compute_own = [&] {
    now += own_rows[next] * row;
    turns.push_back({false, next++});
  };
  for (const Arrival& arrival : arrivals) {
    while (next < own_rows.size() && now < arrival.at) compute_own();
    now = std::max(now, arrival.at) + arrival.rows * row;
    turns.push_back({true, arrival.index});
  }
  while (next < own_rows.size()) compute_own();
  return turns;
}

}  // namespace rewire::moe
