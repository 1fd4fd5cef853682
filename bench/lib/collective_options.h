// nccl-tests' flags, with the same names and meanings as far as they apply here. For benchmarks of
// collectives, on the main thread. Thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/lib/flags.h"

namespace rewire::bench {

struct CollectiveOptions {
  int64_t min_bytes = int64_t{32} << 20;
  int64_t max_bytes = int64_t{32} << 20;
  int64_t step_bytes = int64_t{1} << 20;
  int64_t step_factor = 0;  // 0: step_bytes counts
  int64_t iterations = 20;
  int64_t warmup_iterations = 1;
  int64_t check_iterations = 1;
  std::string type = "float";
  std::string op = "sum";
  int64_t root = 0;
  int64_t blocking = 0;
  int64_t average = 1;  // 0: rank 0's time, 1: mean, 2: min, 3: max
  int64_t timeout_seconds = 0;
  bool timestamps = false;
  bool memory = false;
  bool json = false;      // one JSON object on stdout, the text on stderr
  std::string json_file;  // empty: none

  void AddTo(Flags* flags);
  // Checks conditions on several flags: an inverted range, or both a factor and a step.
  [[nodiscard]] absl::Status Check(const Flags& flags) const;
  // Returns every size of the run in ascending order, each rounded down to whole elements.
  [[nodiscard]] std::vector<int64_t> Sizes(int64_t element_bytes) const;
};

}  // namespace rewire::bench
