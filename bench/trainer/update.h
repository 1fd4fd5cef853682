// The update changes weights and optimizer state. It depends only on the reduced gradient and the
// progress, so that a member that joined at this boundary can also run it. Owned by the training
// thread.
#pragma once

#include "absl/status/status.h"
#include "bench/trainer/state.h"

namespace rewire::trainer {

// Clips, steps AdamW and the ballast, gathers the weights, advances the progress. A step whose
// gradient is not finite changes only the progress.
absl::Status ApplyUpdate(const Args& args, TrainingState& state, Communicator& comm);

}  // namespace rewire::trainer
