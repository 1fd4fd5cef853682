#include "bench/trainer/update.h"

#include <vector>

#include "bench/trainer/chunks.h"
#include "bench/trainer/fixed_point.h"
#include "bench/trainer/optimizer.h"
#include "reconfig/base/status_macros.h"

namespace rewire::trainer {
namespace {

// Returns this member's part of the mean gradient, as floats.
std::vector<float> MeanGradient(const Args& args, const TrainingState& state, uint64_t count) {
  std::vector<float> mean(count);
  const double samples = static_cast<double>(args.batch) * args.accumulate;
  const auto* floats = reinterpret_cast<const float*>(state.gradient_host.data());
  for (uint64_t i = 0; i < count; ++i) {
    const double sum =
        state.exact() ? FromFixed(state.gradient_host[i]) : static_cast<double>(floats[i]);
    mean[i] = static_cast<float>(sum / samples);
  }
  return mean;
}

absl::StatusOr<double> Norm(const std::vector<float>& gradient, TrainingState& state,
                            Communicator& comm) {
  FixedSquares squares;
  for (const float g : gradient) squares.Add(static_cast<double>(g));
  if (state.zero1()) {
    state.small_host[0] = squares.whole;
    state.small_host[1] = squares.fraction;
    REWIRE_RETURN_IF_ERROR(state.ReduceSmall(comm, 2));
    squares.whole = state.small_host[0];
    squares.fraction = state.small_host[1];
  }
  return squares.Root();
}

}  // namespace

absl::Status ApplyUpdate(const Args& args, TrainingState& state, Communicator& comm) {
  const Device& device = state.device();
  const Range mine = state.Part(state.elements());
  const uint64_t step = state.progress.step;
  const StateTensor& gradient = state.tensors.at("gradient");
  const CUdeviceptr master = state.tensors.at("master").at();
  const CUdeviceptr first = state.tensors.at("first").at();
  const CUdeviceptr second = state.tensors.at("second").at();
  const size_t bytes = mine.size() * 4;
  REWIRE_RETURN_IF_ERROR(device.CopyOut(state.gradient_host.data(), gradient.at(),
                                        mine.size() * gradient.element_bytes));
  REWIRE_RETURN_IF_ERROR(device.CopyOut(state.master_host.data(), master, bytes));
  REWIRE_RETURN_IF_ERROR(device.CopyOut(state.first_host.data(), first, bytes));
  REWIRE_RETURN_IF_ERROR(device.CopyOut(state.second_host.data(), second, bytes));
  REWIRE_RETURN_IF_ERROR(device.Synchronize());

  if (state.progress.nonfinite == 0) {
    const std::vector<float> mean = MeanGradient(args, state, mine.size());
    REWIRE_ASSIGN_OR_RETURN(const double norm, Norm(mean, state, comm));
    const AdamStep adam = AdamStep::At(args.schedule, step, args.clip, norm, args.weight_decay);
    AdamUpdate(adam, mean, std::span(state.decays).subspan(mine.begin, mine.size()),
               {state.master_host.data(), mine.size()}, {state.first_host.data(), mine.size()},
               {state.second_host.data(), mine.size()});
    REWIRE_RETURN_IF_ERROR(device.CopyIn(master, state.master_host.data(), bytes));
    REWIRE_RETURN_IF_ERROR(device.CopyIn(first, state.first_host.data(), bytes));
    REWIRE_RETURN_IF_ERROR(device.CopyIn(second, state.second_host.data(), bytes));
    if (const auto ballast = state.tensors.find("ballast"); ballast != state.tensors.end()) {
      const Range part = state.Part(ballast->second.elements);
      REWIRE_RETURN_IF_ERROR(ForEachChunk(device, ballast->second.at(), part.size(),
                                          ChunkAccess::kUpdate,
                                          [&](uint64_t at, std::span<float> values) {
                                            BallastUpdate(step, part.begin + at, values);
                                            return absl::OkStatus();
                                          }));
    }
  }
  // Also runs after a skipped step: a member that has just joined has no weights on its host yet.
  REWIRE_RETURN_IF_ERROR(state.PublishWeights(comm, state.master_host.data()));
  state.progress.step = step + 1;
  return absl::OkStatus();
}

}  // namespace rewire::trainer
