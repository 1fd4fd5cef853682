#include "bench/moe/layer_counts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace rewire::bench {

LayerCounts::LayerCounts(const LayerShape& shape, uint64_t seed)
    : shape_(shape), random_(seed), staying_(shape.experts) {
  for (double& s : staying_) s = shape.staying * normal_(random_);
}

moe::Counts LayerCounts::Next() {
  std::vector<double> shared = staying_;
  for (double& s : shared) s += shape_.passing * normal_(random_);
  moe::Counts counts(shape_.devices, shape_.experts);
  std::vector<double> share(shape_.experts);
  for (uint32_t d = 0; d < shape_.devices; ++d) {
    for (uint32_t e = 0; e < shape_.experts; ++e) {
      share[e] = std::exp(shared[e] + shape_.local * normal_(random_));
    }
    // A token goes to `top` different experts, so shares are capped at 1 / top. The excess goes to
    // the other experts. These rarely exceed the cap in turn, and are then capped again.
    for (int round = 0; round < 3; ++round) {
      const double all = std::accumulate(share.begin(), share.end(), 0.0);
      for (double& s : share) s = std::min(s / all, 1.0 / shape_.top);
    }
    const double tokens = static_cast<double>(shape_.tokens) * shape_.top;
    for (uint32_t e = 0; e < shape_.experts; ++e) {
      counts.at(d, e) = static_cast<uint32_t>(std::lround(tokens * share[e]));
    }
  }
  return counts;
}

}  // namespace rewire::bench
