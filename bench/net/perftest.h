// Runs a program of perftest between two RDMA devices of this machine: a server and a client, each
// in its own process. Thread-compatible; the calling thread waits for the end of the run.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

// Returns the numbers of perftest's result line for messages of `bytes` bytes, the size first.
// ib_write_bw reports the messages, peak and average in MiB/s, and 10^6 messages/s. ib_send_lat
// reports the messages and, in microseconds, min, max, typical, average, deviation and two
// percentiles. Fails if there is no such line or perftest did not find its clock frequency ("inf").
// Pure; thread-safe.
[[nodiscard]] absl::StatusOr<std::vector<double>> ParsePerftest(std::string_view output,
                                                                size_t bytes);

struct PerftestEnd {
  std::string device;
  std::string address;  // the server's address, for the client; unused for a client
  int processor = 0;
};

// Runs `arguments` ("ib_write_bw", "-s", "8") at both ends, and returns the client's output.
[[nodiscard]] absl::StatusOr<std::string> RunPerftest(const std::vector<std::string>& arguments,
                                                      const PerftestEnd& server,
                                                      const PerftestEnd& client);

}  // namespace rewire::bench
