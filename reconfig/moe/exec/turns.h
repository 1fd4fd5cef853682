// Orders a device's computation of own rows and received rows, for the balancer and its model of a
// round. Received rows are computed as soon as they should be there, so that results travel while
// other rows are computed. Own rows fill the time until then. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

// One in kAtOnce of a device's static rows is computed before there is a plan.
inline constexpr uint32_t kAtOnce = 4;

struct Arrival {
  uint64_t at = 0;  // picoseconds since the round began
  uint32_t rows = 0;
  uint32_t index = 0;  // the caller's index
};

struct Turn {
  bool received = false;
  uint32_t index = 0;  // number of an own run of rows, or Arrival::index
};

// Returns all own runs and arrivals. Until the next arrival, the largest own run that ends before
// it comes next, or else the smallest. at_once: rows that are computed before; row: picoseconds.
[[nodiscard]] std::vector<Turn> TakeTurns(uint64_t at_once, std::span<const uint32_t> own_rows,
                                          std::vector<Arrival> arrivals, uint64_t row);

}  // namespace rewire::moe
