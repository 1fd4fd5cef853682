#include "bench/loss/lane_plan.h"

#include <algorithm>

#include "tests/sim/seeded_random.h"

namespace rewire::bench {

const char* NameOf(LaneKind kind) {
  constexpr const char* kNames[] = {"steady", "churn", "splits", "idle"};
  return kNames[static_cast<size_t>(kind)];
}

int LanePlan::RankOf(int rank_of_job) const {
  const auto own = std::find(ranks.begin(), ranks.end(), rank_of_job);
  return own == ranks.end() ? -1 : static_cast<int>(own - ranks.begin());
}

std::string LanePlan::Text() const {
  return std::string(NameOf(kind)) + (blocking ? "" : " non-blocking") + ", " +
         std::to_string(ranks.size()) + " ranks";
}

std::vector<LanePlan> DrawLanes(uint64_t seed, int ranks) {
  sim::SeededRandom random(seed);
  std::vector<LanePlan> lanes(2 + random.Below(3));
  for (size_t i = 0; i < lanes.size(); ++i) {
    LanePlan& lane = lanes[i];
    lane.number = static_cast<int>(i);
    if (i > 0) lane.kind = static_cast<LaneKind>(random.Below(4));
    lane.blocking = !random.OneIn(3);
    lane.queries = random.OneIn(3);
    const bool all = i == 0 || random.OneIn(2);
    for (int r = 0; r < ranks; ++r) {
      if (all || random.OneIn(2)) lane.ranks.push_back(r);
    }
    if (lane.ranks.size() < 2) lane.ranks = {0, ranks - 1};
    if (random.OneIn(2)) std::reverse(lane.ranks.begin(), lane.ranks.end());
  }
  return lanes;
}

}  // namespace rewire::bench
