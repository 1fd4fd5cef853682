// One step's gradient: forward and backward pass of this member's samples, summed over all members.
// Owned by the training thread.
#pragma once

#include "absl/status/status.h"
#include "bench/trainer/sampler.h"
#include "bench/trainer/state.h"

namespace rewire::trainer {

class GradientPass {
 public:
  GradientPass(const Args& args, const Model<float>& model, const Sampler& sampler)
      : args_(args), model_(model), sampler_(sampler) {}

  // Leaves the reduced gradient on the device and the step's sums in the progress. After a failure
  // the pass can be repeated: the repetition overwrites every change.
  absl::Status Run(TrainingState& state, Communicator& comm);

 private:
  void Accumulate(TrainingState& state, uint64_t index, Progress& sums);

  const Args& args_;
  const Model<float>& model_;
  const Sampler& sampler_;
  AlignedVector<float> sample_;  // gradient of one sample
};

}  // namespace rewire::trainer
