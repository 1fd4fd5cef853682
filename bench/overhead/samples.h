// One member's measurements, written to a file for the program that started the member. Pure,
// except for the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace rewire::bench {

// The way of a step. Control: plain steps on another communicator, which show differences between
// two communicators without Rewire.
enum class Way { kPlain, kRewire, kControl };
inline constexpr int kWays = 3;

// One round: sums over the counted steps of each way.
struct Round {
  int64_t cpu_ns[kWays] = {};
  int64_t wall_ns[kWays] = {};
};

struct Samples {
  std::vector<Round> rounds;
  uint64_t steps_of_round = 0;  // counted steps of each way
  // CPU time of Rewire's own threads in this process and of the other processes (the agent and the
  // launcher) during the rounds. Also the duration of the rounds, in steps with Rewire and in time.
  int64_t threads_cpu_ns = 0;
  int64_t agent_cpu_ns = 0;
  int64_t elapsed_ns = 0;
  uint64_t rewire_steps = 0;
  // Per call of rewireUpdate(), minus a plain call of the function; one value for each batch.
  std::vector<double> update_ns;

  [[nodiscard]] absl::Status Write(const std::string& path) const;
  static absl::StatusOr<Samples> Read(const std::string& path);
};

}  // namespace rewire::bench
