// One run of a program of perftest between two RDMA devices of this machine: a server and a client,
// each a process of its own. For one thread, which waits.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// The numbers of the line that perftest prints of messages of so many bytes, the size first:
// ib_write_bw's have the messages, peak and average in MiB/s and 10^6 messages/s, ib_send_lat's the
// messages and in microseconds min, max, typical, average, deviation, two percentiles. An error
// where there is no such line or perftest did not find out how fast its clock is ("inf"). Pure.
[[nodiscard]] absl::StatusOr<std::vector<double>> ParsePerftest(std::string_view output,
                                                                size_t bytes);

struct PerftestEnd {
  std::string device;
  std::string address;  // of the server alone: where the client finds it
  int processor = 0;
};

// Runs `arguments` ("ib_write_bw", "-s", "8") at both ends, and gives what the client printed.
[[nodiscard]] absl::StatusOr<std::string> RunPerftest(const std::vector<std::string>& arguments,
                                                      const PerftestEnd& server,
                                                      const PerftestEnd& client);

}  // namespace rewire::bench
