#include "bench/moe/iteration_model.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/lib/statistics.h"
#include "bench/moe/csv_rows.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

constexpr double kTokens = 128.0 * 8192 / 32;  // tokens of one device
constexpr double kSequence = 8192;
constexpr double kVocabulary = 32000;
constexpr double kBytes = 2;  // bytes of a number on the wire
// Passes: forward, recomputation, and twice that backward. Tokens are dispatched and combined
// forward, in the recomputation and backward.
constexpr double kPasses = 4, kExchanges = 6;
// Megatron's tensor parallelism gathers and scatters activations: two times each in forward and
// recomputation, three times backward.
constexpr double kTensorExchanges = 7;
// A node has every expert; one of its eight devices computes an eighth of its own tokens.
constexpr double kLeaving = 7.0 / 8;

constexpr std::array<MoeShape, 6> kShapes = {{
    {"mixtral-8x7b-e8k2", 4096, 14336, 32, 8, 2, 2, 8.0 / 32, 8},
    {"mixtral-8x7b-e16k4", 4096, 7168, 24, 16, 4, 4, 8.0 / 32, 4},
    {"mixtral-8x22b-e8k2", 6144, 16384, 18, 8, 2, 2, 8.0 / 48, 8},
    {"mixtral-8x22b-e16k4", 6144, 8192, 14, 16, 4, 4, 8.0 / 48, 4},
    {"qwen-8x7b-e8k2", 4096, 14336, 32, 8, 2, 2, 8.0 / 32, 8},
    {"qwen-8x7b-e16k4", 4096, 7168, 24, 16, 4, 4, 8.0 / 32, 4},
}};

struct Imbalance {
  std::string_view method;
  double e8k2, e16k4;
};
constexpr std::array<Imbalance, 4> kImbalance = {{
    {"megatron", 1.664, 1.729},  // the values of FSDP
    {"FSDP", 1.664, 1.729},
    {"FLEX", 1.503, 1.657},
    {"LAER", 1.413, 1.288},
}};

std::array<double, 3> Columns(const IterationWork& work) {
  return {work.compute_tflop, work.wait_tflop, work.exchanged_gb};
}

}  // namespace

absl::StatusOr<std::vector<IterationCell>> ReadIterations(const std::string& path) {
  REWIRE_ASSIGN_OR_RETURN(auto rows, ReadCsvRows(path));
  std::vector<IterationCell> cells;
  for (auto& row : rows) {
    IterationCell cell{row["dataset"], row["method"], row["model_name"], row["aux_loss"], 0};
    if (!absl::SimpleAtod(row["avg_time_ms"], &cell.seconds) || cell.seconds <= 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": avg_time_ms is '", row["avg_time_ms"], "'"));
    }
    cell.seconds /= 1000;
    cells.push_back(std::move(cell));
  }
  return cells;
}

absl::StatusOr<MoeShape> ShapeOf(std::string_view model) {
  for (const MoeShape& s : kShapes) {
    if (s.name == model) return s;
  }
  return absl::NotFoundError(absl::StrCat("no model '", std::string(model), "'"));
}

IterationWork WorkOf(const MoeShape& s, double max_over_mean, double leaving, bool megatron) {
  const double attention = 2 * (2 + 2 * s.kv_share) * s.hidden * s.hidden +
                           2 * kSequence * s.hidden;    // projections; causal scores and values
  const double experts = 6 * s.top * s.hidden * s.ffn;  // three matrices
  const double head = 2 * s.hidden * kVocabulary;
  const double token_bytes = kBytes * s.hidden;
  IterationWork work;
  work.compute_tflop =
      kTokens * (kPasses * s.layers * (attention + experts) + (kPasses - 1) * head) / 1e12;
  work.wait_tflop = (max_over_mean - 1) * kTokens * kPasses * s.layers * experts / 1e12;
  double per_layer = kExchanges * s.top * leaving;
  if (megatron) per_layer += kTensorExchanges * (s.tensor_parallel - 1);
  work.exchanged_gb = kTokens * s.layers * token_bytes * per_layer / 1e9;
  return work;
}

absl::StatusOr<IterationWork> WorkOf(const IterationCell& cell) {
  REWIRE_ASSIGN_OR_RETURN(const MoeShape shape, ShapeOf(cell.model));
  for (const Imbalance& i : kImbalance) {
    if (i.method != cell.method) continue;
    const double max_over_mean = shape.experts == 8 ? i.e8k2 : i.e16k4;
    return WorkOf(shape, max_over_mean, kLeaving, cell.method == "megatron");
  }
  return absl::NotFoundError(absl::StrCat("no method '", cell.method, "'"));
}

double IterationModel::Seconds(const IterationWork& work) const {
  return s_per_tflop * work.compute_tflop + s_per_waited_tflop * work.wait_tflop +
         s_per_gb * work.exchanged_gb;
}

absl::StatusOr<IterationModel> FitIterations(std::span<const IterationCell> cells) {
  // The normal equations of sum (x * w / y - 1)^2 have the right side as a fourth column.
  std::array<std::array<double, 4>, 3> rows{};
  for (const IterationCell& cell : cells) {
    REWIRE_ASSIGN_OR_RETURN(const IterationWork work, WorkOf(cell));
    const std::array<double, 3> x = Columns(work);
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 3; ++j) rows[i][j] += x[i] * x[j] / (cell.seconds * cell.seconds);
      rows[i][3] += x[i] / cell.seconds;
    }
  }
  for (size_t i = 0; i < 3; ++i) {
    const double pivot = rows[i][i];
    if (!(std::abs(pivot) > 1e-9)) {
      return absl::InvalidArgumentError(
          absl::StrCat(cells.size(), " cells do not determine three constants"));
    }
    for (double& v : rows[i]) v /= pivot;
    for (size_t k = 0; k < 3; ++k) {
      if (k == i) continue;
      const double factor = rows[k][i];
      for (size_t j = 0; j < 4; ++j) rows[k][j] -= factor * rows[i][j];
    }
  }
  return IterationModel{rows[0][3], rows[1][3], rows[2][3]};
}

absl::StatusOr<ModelledIterations> ModelIterations(std::span<const IterationCell> cells,
                                                   std::string_view fitted_dataset) {
  std::vector<IterationCell> fitted;
  for (const IterationCell& c : cells) {
    if (c.dataset == fitted_dataset) fitted.push_back(c);
  }
  ModelledIterations result;
  REWIRE_ASSIGN_OR_RETURN(result.model, FitIterations(fitted));
  std::vector<double> errors, held_out;
  for (const IterationCell& c : cells) {
    REWIRE_ASSIGN_OR_RETURN(const IterationWork work, WorkOf(c));
    const double seconds = result.model.Seconds(work);
    const double error = std::abs(seconds - c.seconds) / c.seconds;
    const bool was_fitted = c.dataset == fitted_dataset;
    result.cells.push_back({c, seconds, error, was_fitted});
    errors.push_back(error);
    if (!was_fitted) held_out.push_back(error);
  }
  REWIRE_ASSIGN_OR_RETURN(const Summary all, Summarize(std::move(errors)));
  REWIRE_ASSIGN_OR_RETURN(const Summary others, Summarize(std::move(held_out)));
  result.median_error = all.median;
  result.median_error_held_out = others.median;
  return result;
}

}  // namespace rewire::bench
