// In which order a device computes its own rows and those that others send it: what is sent as soon
// as it should be there, so that results are on their way while there is something else to compute;
// own rows until then. For the balancer and its model of a round. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rewire::moe {

// Of the static rows a device has, one in so many is computed before there is a plan.
inline constexpr uint32_t kAtOnce = 4;

struct Arrival {
  uint64_t at = 0;  // picoseconds since the round began
  uint32_t rows = 0;
  uint32_t index = 0;  // the caller's
};

struct Turn {
  bool received = false;
  uint32_t index = 0;  // of an own run of rows, in their order; or an arrival's
};

// All of both. Of own runs, until something arrives, the largest that is through by then, or the
// smallest. at_once: rows that are computed before; row: picoseconds.
[[nodiscard]] std::vector<Turn> TakeTurns(uint64_t at_once, std::span<const uint32_t> own_rows,
                                          std::vector<Arrival> arrivals, uint64_t row);

}  // namespace rewire::moe
