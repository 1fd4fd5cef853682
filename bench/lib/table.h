// Text in nccl-tests' style: every line that is not a row begins with '#', columns are as wide as
// there, so that scripts that read its output read ours. Pure functions that return lines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rewire::bench {

// One direction of a row. Times in microseconds, bandwidths in 10^9 bytes per second.
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

// The value in exactly `width` characters: as many decimals, at most `decimals`, as leave room.
[[nodiscard]] std::string FitNumber(double value, int width, int decimals);

[[nodiscard]] std::string TableStart(std::string_view program, std::string_view configuration,
                                     const std::vector<std::string>& devices);
[[nodiscard]] std::string TableHeader();
[[nodiscard]] std::string TableRow(const Row& row);
// The three closing lines. Out of bounds: how many values were wrong.
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
// algbw and busbw from the number of bytes that nccl-tests divides by and the ranks.
[[nodiscard]] Measured Bandwidth(Collective collective, int64_t bytes, int ranks, double time_us);

}  // namespace rewire::bench
