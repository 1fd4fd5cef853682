#include "bench/swap/mode_plan.h"

namespace rewire::bench {
namespace {

const std::vector<StepKind> kCollectives = {StepKind::kAllReduce, StepKind::kBroadcast,
                                            StepKind::kAllGather, StepKind::kReduceScatter,
                                            StepKind::kReduce};

class Lanes {
 public:
  explicit Lanes(int ranks) {
    for (int r = 0; r < ranks; ++r) all_.push_back(r);
  }

  // A communicator of all ranks.
  LanePlan All() {
    LanePlan lane;
    lane.number = next_++;
    lane.ranks = all_;
    lane.kinds = kCollectives;
    return lane;
  }
  LanePlan NonBlocking() {
    LanePlan lane = All();
    lane.nonblocking = true;
    return lane;
  }
  LanePlan Idle(uint64_t period) {
    LanePlan lane = All();
    lane.period = period;
    return lane;
  }
  static LanePlan Mortal(LanePlan lane, uint64_t life) {
    lane.life = life;
    return lane;
  }
  LanePlan On(int streams) {
    LanePlan lane = All();
    lane.streams = streams;
    return lane;
  }
  LanePlan Of(std::vector<int> ranks) {
    LanePlan lane = All();
    lane.ranks = std::move(ranks);
    return lane;
  }
  // Every kind of operation, each with its time.
  LanePlan Timed(int streams) {
    LanePlan lane = On(streams);
    lane.kinds.push_back(StepKind::kRing);
    lane.kinds.push_back(StepKind::kAllToAll);
    lane.timed = true;
    return lane;
  }
  LanePlan PointToPoint() {
    LanePlan lane = All();
    lane.kinds = {StepKind::kRing, StepKind::kAllToAll, StepKind::kRing, StepKind::kAllReduce};
    return lane;
  }

 private:
  std::vector<int> all_;
  uint32_t next_ = 0;
};

}  // namespace

std::optional<ModePlan> PlanOf(std::string_view mode, int processes) {
  ModePlan plan;
  if (mode == "ranks") plan.ranks_per_process = 2;
  const int ranks = processes * plan.ranks_per_process;
  Lanes lanes(ranks);
  const int last = ranks - 1;
  if (mode == "nonblocking") {
    plan.threads = {{lanes.NonBlocking(), lanes.NonBlocking(), lanes.All()}};
  } else if (mode == "p2p") {
    plan.threads = {{lanes.PointToPoint(), lanes.All(), lanes.PointToPoint()}};
  } else if (mode == "multi") {
    plan.threads = {{lanes.All(), lanes.All(), lanes.Of({0, last}), lanes.Of({last, 0}),
                     lanes.Of({0, 1}), lanes.Idle(8)}};
  } else if (mode == "churn") {
    plan.threads = {{lanes.All(), Lanes::Mortal(lanes.All(), 1000),
                     Lanes::Mortal(lanes.All(), 1700), Lanes::Mortal(lanes.NonBlocking(), 2600),
                     lanes.All()}};
  } else if (mode == "threads") {
    for (int i = 0; i < 3; ++i) plan.threads.push_back({lanes.All(), lanes.Of({last, 0})});
  } else if (mode == "idle") {
    plan.threads = {{lanes.All(), lanes.Idle(150), lanes.Idle(400), lanes.Idle(1000)}};
  } else if (mode == "streams") {
    plan.threads = {{lanes.On(3), lanes.On(2), lanes.All()}};
  } else if (mode == "soak") {
    plan.threads = {{lanes.Timed(2), lanes.Timed(2), lanes.Timed(1), lanes.Timed(1)}};
  } else if (mode == "memory") {
    plan.threads = {{lanes.On(2), lanes.PointToPoint(), lanes.NonBlocking(), lanes.Of({last, 0})}};
  } else if (mode == "ranks") {
    plan.threads = {{lanes.All(), lanes.All(), lanes.Of({0, last})}};
  } else {
    return std::nullopt;
  }
  return plan;
}

}  // namespace rewire::bench
