// The JSON lines that a run writes: phases of the start, and one row per step. Every row is written
// at once and whole, so that a reader can follow and a kill loses nothing. Owned by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::trainer {

int64_t MonotonicNs();
int64_t ThreadCpuNs();
// Returns the start time of this process on the monotonic clock, to the kernel's clock tick.
int64_t ProcessStartNs();

struct StepRow {
  uint64_t step = 0;  // 0 for the first
  double loss = 0;
  int64_t step_ns = 0;
  int64_t cpu_ns = 0;
  int slots = 1;
  int slot = 0;
  uint64_t epoch = 0;
  std::string_view outcome;
  uint64_t repeats = 0;  // number of times that this step's work was discarded
  uint64_t pause_ns = 0;
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
};

// The bits of a double as hexadecimal text.
std::string LossBits(double loss);

class StepLog {
 public:
  // Before Open, phases are buffered; without Open everything is dropped.
  void Phase(std::string_view name, int64_t wall_ns);
  // Replaces {member} in the path.
  absl::Status Open(std::string path, uint32_t member);
  void Step(const StepRow& row);
  // Logs that the member left, or that a step was discarded.
  void Event(std::string_view kind, uint64_t step, uint64_t epoch, uint64_t pause_ns);

 private:
  void Write(const std::string& line);

  UniqueFd file_;
  uint32_t member_ = 0;
  std::vector<std::pair<std::string, int64_t>> waiting_;
};

}  // namespace rewire::trainer
