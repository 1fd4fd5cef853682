#include "bench/trainer/gradient.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "bench/trainer/fixed_point.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {

void GradientPass::Accumulate(TrainingState& state, uint64_t index, Progress& sums) {
  const uint64_t step = state.progress.step;
  const RandomKey key(args_.seed, {step, index});
  const auto window = sampler_.Window(step, index);
  SampleResult r;
  bool finite = true;
  if (state.exact()) {
    sample_.assign(state.elements(), 0.0f);
    r = model_.Run(state.host_weights.data(), window, key, sample_.data());
    int64_t* sum = state.gradient_host.data();
    for (uint64_t i = 0; i < state.elements(); ++i) {
      finite = finite && std::isfinite(sample_[i]);
      sum[i] += ToFixed(static_cast<double>(sample_[i]));
    }
  } else {
    auto* sum = reinterpret_cast<float*>(state.gradient_host.data());
    r = model_.Run(state.host_weights.data(), window, key, sum);
  }
  sums.nonfinite += finite && std::isfinite(r.loss) ? 0 : 1;
  sums.loss_sum += ToFixed(r.loss);
  sums.activation_sum += ToFixed(r.activation);
}

absl::Status GradientPass::Run(TrainingState& state, Communicator& comm) {
  const size_t bytes = state.elements() * (state.exact() ? 8 : 4);
  std::fill_n(reinterpret_cast<char*>(state.gradient_host.data()), bytes, 0);
  Progress sums;
  for (int micro = 0; micro < args_.accumulate; ++micro) {
    // Samples are distributed one by one: if the world does not divide the batch, some members get
    // fewer.
    for (int i = state.slot; i < args_.batch; i += state.slots) {
      Accumulate(state, static_cast<uint64_t>(micro) * args_.batch + i, sums);
    }
  }
  if (!state.exact()) {
    const auto* sum = reinterpret_cast<const float*>(state.gradient_host.data());
    for (uint64_t i = 0; i < state.elements(); ++i) {
      if (!std::isfinite(sum[i])) {
        ++sums.nonfinite;
        break;
      }
    }
  }
  sums.stop = !args_.stop_file.empty() && access(args_.stop_file.c_str(), F_OK) == 0 ? 1 : 0;

  StateTensor& gradient = state.tensors.at("gradient");
  const ncclDataType_t type = state.exact() ? ncclInt64 : ncclFloat32;
  const CUdeviceptr whole = state.zero1() ? state.full_gradient.at() : gradient.at();
  int64_t* words = state.small_host.data();
  words[0] = sums.loss_sum;
  words[1] = sums.activation_sum;
  words[2] = sums.nonfinite;
  words[3] = sums.stop;
  const Device& device = state.device();
  REWIRE_RETURN_IF_ERROR(device.CopyIn(whole, state.gradient_host.data(), bytes));
  REWIRE_RETURN_IF_ERROR(device.CopyIn(state.small.at(), words, size_t{4} * 8));
  if (state.zero1()) {
    REWIRE_RETURN_IF_ERROR(comm.ReduceScatter(whole, gradient.at(), state.Chunk(), type));
  } else {
    REWIRE_RETURN_IF_ERROR(comm.AllReduce(whole, state.elements(), type));
  }
  REWIRE_RETURN_IF_ERROR(comm.AllReduce(state.small.at(), 4, ncclInt64));
  REWIRE_RETURN_IF_ERROR(device.CopyOut(words, state.small.at(), size_t{4} * 8));
  REWIRE_RETURN_IF_ERROR(comm.Wait());

  Progress& p = state.progress;
  p.loss_sum = words[0];
  p.activation_sum = words[1];
  p.nonfinite = words[2];
  p.stop = words[3];
  const double mean = FromFixed(p.activation_sum) / (args_.batch * args_.accumulate);
  const double before = state.running[(p.step + 3) % 4];
  state.running[p.step % 4] = p.step == 0 ? mean : 0.9 * before + 0.1 * mean;
  return absl::OkStatus();
}

}  // namespace rewire::trainer
