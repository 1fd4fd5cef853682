// Text in nccl-tests' style, for scripts that read nccl-tests' output: every line that is not a row
// begins with '#', and columns have the same widths. Pure; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rewire::bench {

// One direction of a row. Times are in microseconds, bandwidths in 10^9 bytes per second.
struct Measured {
  double time_us = 0;
  double algbw = 0;
  double busbw = 0;
  std::optional<int64_t> wrong;  // absent: not checked
};

struct Row {
  int64_t size = 0;
  int64_t count = 0;
  std::string type;
  std::string op;
  int64_t root = -1;
  Measured out_of_place;
  Measured in_place;
};

// Returns the value in exactly `width` characters, with at most `decimals` decimals.
[[nodiscard]] std::string FitNumber(double value, int width, int decimals);

[[nodiscard]] std::string TableStart(std::string_view program, std::string_view configuration,
                                     const std::vector<std::string>& devices);
[[nodiscard]] std::string TableHeader();
[[nodiscard]] std::string TableRow(const Row& row);
// Returns the three closing lines. out_of_bounds: number of wrong values.
[[nodiscard]] std::string TableEnd(std::string_view program, int64_t out_of_bounds,
                                   double average_busbw);

enum class Collective {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kSendRecv
};
// Computes algbw and busbw from the ranks and the number of bytes that nccl-tests divides by.
[[nodiscard]] Measured Bandwidth(Collective collective, int64_t bytes, int ranks, double time_us);

}  // namespace rewire::bench
