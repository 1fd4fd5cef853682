// A checkpoint: one file per member, PATH.SLOT, each with its part of every tensor. A world of any
// size can load it. Owned by the training thread.
//
// A file has a header of 4096 bytes (docs: CheckpointHeader), then this slot's part (rewireShard of
// the saved world) of master, first, second and ballast, fp32.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "bench/trainer/state.h"
#include "bench/trainer/step_log.h"

namespace rewire::trainer {

struct CheckpointHeader {
  char magic[8];
  uint32_t version;
  uint32_t slots;
  uint32_t slot;
  uint32_t exact;
  uint64_t elements;
  uint64_t ballast;
  uint64_t seed;
  uint64_t samples;  // per step
  Progress progress;
  RunningMean running;
  uint64_t hash;  // of all previous fields
};

// Replaces the file at the path atomically: a file is complete on the disk, or absent. Logs
// "written" when the data is written but not yet on the disk.
absl::Status SaveCheckpoint(const Args& args, TrainingState& state, StepLog& log);
// Fills this member's part of the optimizer state, the progress and the running mean.
absl::Status LoadCheckpoint(const Args& args, TrainingState& state);

}  // namespace rewire::trainer
