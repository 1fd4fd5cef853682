// Models the duration of a training iteration of a mixture-of-experts model from its computation
// and exchange, with three fitted constants. The model is checked against LAER-MoE's measured
// iterations (data/iteration_ms.csv: 4 nodes of 8 A100, 128 sequences of 8,192 tokens).
//
//   T = a * (dense + expert floating-point operations of a device)
//     + b * (max / mean - 1) * its expert operations      all wait for the busiest
//     + c * bytes that the device exchanges inside its node
//
// The shapes of the models and the trained layers are the artifact's (its meta_configs and e2e.sh).
// max / mean of the tokens that devices compute is from the artifact's token_analysis_backup.csv.
// For Megatron no value was published; FSDP+EP's value is used, which places experts as Megatron
// does. Auxiliary loss and data set are not modelled. Thread-compatible.
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
  double capacity;         // experts of one device
  double kv_share;         // key and value heads per query head
  double tensor_parallel;  // tensor-parallel devices in Megatron's runs
};
// Fails on a model that the artifact does not have.
[[nodiscard]] absl::StatusOr<MoeShape> ShapeOf(std::string_view model);

// Work of one device in one iteration.
struct IterationWork {
  double compute_tflop = 0;
  double wait_tflop = 0;
  double exchanged_gb = 0;
};
// max_over_mean: of the tokens that devices compute. leaving: the share of tokens that are computed
// on another device than their own.
[[nodiscard]] IterationWork WorkOf(const MoeShape& shape, double max_over_mean, double leaving,
                                   bool megatron);
// Returns the work of a measured cell.
[[nodiscard]] absl::StatusOr<IterationWork> WorkOf(const IterationCell& cell);

struct IterationModel {
  double s_per_tflop = 0;
  double s_per_waited_tflop = 0;
  double s_per_gb = 0;
  [[nodiscard]] double Seconds(const IterationWork& work) const;
};
// Minimises the squared relative errors. Fails if the cells do not determine three constants.
[[nodiscard]] absl::StatusOr<IterationModel> FitIterations(std::span<const IterationCell> cells);

// A cell with the modelled seconds; `error` is relative to the measured seconds.
struct ModelledCell {
  IterationCell cell;
  double modelled_seconds = 0;
  double error = 0;
  bool fitted = false;  // the constants were fitted on this cell
};
struct ModelledIterations {
  IterationModel model;
  std::vector<ModelledCell> cells;
  double median_error = 0;
  double median_error_held_out = 0;
};
// Fits the constants on one data set and models all cells.
[[nodiscard]] absl::StatusOr<ModelledIterations> ModelIterations(
    std::span<const IterationCell> cells, std::string_view fitted_dataset);

}  // namespace rewire::bench
