// How long a training iteration of a mixture-of-experts model takes, from what it computes and
// exchanges, with three fitted constants; checked against the iterations that LAER-MoE's authors
// measured (data/iteration_ms.csv: 4 nodes of 8 A100, 128 sequences of 8,192 tokens).
//
//   T = a * (dense + expert floating-point operations of a device)
//     + b * (max / mean - 1) * its expert operations      what the others wait for the busiest
//     + c * bytes that it exchanges inside its node
//
// The shapes of the models and the layers that were trained are the artifact's (its meta_configs
// and e2e.sh), max / mean of the tokens that devices compute are from its
// token_analysis_backup.csv. Of Megatron none was published: FSDP+EP's are taken, which places
// experts as Megatron does. Auxiliary loss and data set are not modelled. One thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace rewire::bench {

struct IterationCell {
  std::string dataset;
  std::string method;  // megatron, FSDP, FLEX or LAER
  std::string model;
  std::string aux_loss;
  double seconds = 0;
};
[[nodiscard]] absl::StatusOr<std::vector<IterationCell>> ReadIterations(const std::string& path);

struct MoeShape {
  std::string_view name;
  double hidden, ffn, layers, experts, top;
  double capacity;         // experts of a device
  double kv_share;         // heads of keys and values per head of queries
  double tensor_parallel;  // devices, in Megatron's runs
};
// Fails on a model that the artifact has not.
[[nodiscard]] absl::StatusOr<MoeShape> ShapeOf(std::string_view model);

// Of one device in one iteration.
struct IterationWork {
  double compute_tflop = 0;
  double wait_tflop = 0;
  double exchanged_gb = 0;
};
// max_over_mean: of the tokens that devices compute. leaving: the share of tokens that are computed
// on another device than they are on.
[[nodiscard]] IterationWork WorkOf(const MoeShape& shape, double max_over_mean, double leaving,
                                   bool megatron);
// Of a measured cell.
[[nodiscard]] absl::StatusOr<IterationWork> WorkOf(const IterationCell& cell);

struct IterationModel {
  double s_per_tflop = 0;
  double s_per_waited_tflop = 0;
  double s_per_gb = 0;
  [[nodiscard]] double Seconds(const IterationWork& work) const;
};
// Least squares of the relative errors. Fails where the cells do not determine three constants.
[[nodiscard]] absl::StatusOr<IterationModel> FitIterations(std::span<const IterationCell> cells);

// The model's seconds beside the measured ones, relative to these.
struct ModelledCell {
  IterationCell cell;
  double modelled_seconds = 0;
  double error = 0;
  bool fitted = false;  // was among those the constants are from
};
struct ModelledIterations {
  IterationModel model;
  std::vector<ModelledCell> cells;
  double median_error = 0;
  double median_error_held_out = 0;
};
// Fits on one data set and models all.
[[nodiscard]] absl::StatusOr<ModelledIterations> ModelIterations(
    std::span<const IterationCell> cells, std::string_view fitted_dataset);

}  // namespace rewire::bench
