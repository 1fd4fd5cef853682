#include "reconfig/moe/plan/layout_cost.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::moe {
namespace {

uint64_t Most(const std::vector<uint64_t>& tokens) {
  return *std::max_element(tokens.begin(), tokens.end());
}

}  // namespace

uint64_t LayoutCost(const RoutedTokens& routed, const LayoutRates& rates, Objective objective) {
  const uint64_t computation =
      (rates.recompute ? 4 : 3) * Most(routed.computed) * uint64_t{rates.compute_ps};
  if (objective == Objective::kSum) {
    return 4 * (routed.inside * rates.inside_ps + routed.between * rates.between_ps) + computation;
  }
  const uint64_t busiest = std::max(Most(routed.leaving), Most(routed.arriving));
  return 4 * busiest * rates.between_ps + computation / routed.computed.size();
}

absl::Status CheckCost(uint64_t tokens, const LayoutRates& rates) {
  // Planners also compare loads in units of 1/2^16 tokens and multiply loads by replicas
  // (reconfig/moe/plan/placement.h).
  const uint64_t dearest = std::max({rates.compute_ps, rates.inside_ps, rates.between_ps});
  const uint64_t most =
      std::min(uint64_t{1} << 46, UINT64_MAX / 8 / std::max<uint64_t>(1, dearest));
  if (tokens > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokens, " tokens; a plan can be made for at most ", most));
  }
  return absl::OkStatus();
}

}  // namespace rewire::moe
