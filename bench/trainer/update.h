// The update: everything that changes weights and optimizer state, from the reduced gradient and
// the progress alone, so that a member that joined at this boundary can run it too. The training
// thread only.
#pragma once

#include "absl/status/status.h"
#include "bench/trainer/state.h"

namespace rewire::trainer {

// Clips, steps AdamW and the ballast, gathers the weights, advances the progress. A step whose
// gradient was not finite changes nothing but the progress.
absl::Status ApplyUpdate(const Args& args, TrainingState& state, Communicator& comm);

}  // namespace rewire::trainer
