// The command line of gpt_train, parsed strictly. Pure; thread-safe.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "bench/trainer/model.h"
#include "bench/trainer/optimizer.h"

namespace rewire::trainer {

struct Args {
  ModelShape model;
  Schedule schedule;
  std::string data, save, load, log, stop_file;
  uint64_t steps = 100;
  uint64_t stop_after = 0;  // 0: at --steps
  uint64_t seed = 1;
  int64_t t0_ns = 0;  // 0: the process's start time from the kernel
  int batch = 8;
  int accumulate = 1;
  int state_mb = 0;
  int zero = 0;
  double clip = 1.0;
  double weight_decay = 0.1;
  bool exact = false;
  bool untied_head = false;
  bool no_rewire = false;
  bool help = false;

  [[nodiscard]] uint64_t LastStep() const {
    return stop_after > 0 && stop_after < steps ? stop_after : steps;
  }
};

std::string Usage();
// arguments: without the program's name.
absl::StatusOr<Args> ParseArgs(std::span<const std::string> arguments);

}  // namespace rewire::trainer
