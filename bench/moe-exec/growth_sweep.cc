#include "bench/moe-exec/growth_sweep.h"

#include <map>
#include <utility>

namespace rewire::bench {

std::vector<SweptSetting> SweepGrowth(const RunSetting& base, int64_t seeds) {
  std::vector<SweptSetting> settings = {
      {"layers2_step12", 2, 12, 12, {}, {}, {}},  {"layers2_step4", 2, 12, 4, {}, {}, {}},
      {"layers2_step2", 2, 12, 2, {}, {}, {}},    {"layers2_step1", 2, 12, 1, {}, {}, {}},
      {"layers16_step12", 16, 3, 12, {}, {}, {}}, {"layers16_step1", 16, 3, 1, {}, {}, {}}};
  std::map<std::pair<int64_t, int64_t>, double> plain_ns;  // by layers and seed
  for (SweptSetting& s : settings) {
    for (int64_t seed = 1; seed <= seeds; ++seed) {
      RunSetting run = base;
      run.layers = s.layers;
      run.micro_batches = s.micro_batches;
      run.step = s.step;
      run.seed = seed;
      const auto [plain, fresh] = plain_ns.try_emplace({s.layers, seed});
      if (fresh) {
        plain->second = static_cast<double>(Measure(run, Kind::kPlain).sum.critical_ns);
      }
      const auto fast = static_cast<double>(Measure(run, Kind::kBalanced).sum.critical_ns);
      const auto slow =
          static_cast<double>(Measure(run, Kind::kBalancedSlowCopies).sum.critical_ns);
      s.growth.push_back(slow / fast - 1);
      s.speedup.push_back(plain->second / fast);
      s.speedup_slow_copies.push_back(plain->second / slow);
    }
  }
  return settings;
}

}  // namespace rewire::bench
