#include "reconfig/moe/exec/node_plan.h"

#include <algorithm>
#include <utility>

namespace rewire::moe {
namespace {

// Percentage of the round's shortest possible time up to which no other plan is tried.
constexpr uint64_t kHidden = 102;
constexpr int kPasses = 4;
// A late plan is ignored (BalancerOptions::patience), so the number of evaluated moves per plan is
// bounded. More evaluations shorten the round by less than a thousandth.
constexpr uint64_t kLooks = 500;

// Reduces, removes or reorders moves while that shortens the round. The usual obstacle is the last
// device's last move.
class Trim {
 public:
  Trim(Makespan& makespan, uint32_t least_tokens) : makespan_(makespan), least_(least_tokens) {}

  // Sets the number of moves that may still be evaluated.
  void Allow(uint64_t looks) { left_ = looks; }
  [[nodiscard]] bool spent() const { return left_ == 0; }

  // Shortens the list of moves and returns the new time.
  uint64_t Run(std::vector<PlacedMove>* moves) {
    moves_ = moves;
    time_ = makespan_.Of(*moves);
    delaying_ = makespan_.Delaying(*moves);
    bool better = true;
    for (int pass = 0; better && pass < kPasses; ++pass) {
      better = false;
      for (size_t i = moves->size(); i-- > 0;) {
        if ((delaying_ >> (*moves)[i].from & 1) == 0) continue;
        better = Fewer(i) || Sooner(i) || better;
      }
    }
    return time_;
  }

 private:
  bool Fewer(size_t i) {
    for (const uint32_t eighths : {7U, 6U, 4U, 0U}) {
      tried_ = *moves_;
      uint32_t& tokens = tried_[i].move.tokens;
      tokens = (*moves_)[i].move.tokens * eighths / 8;
      if (eighths != 0 && tokens < least_) continue;
      if (tokens == 0) tried_.erase(tried_.begin() + static_cast<ptrdiff_t>(i));
      if (TakeTried()) return true;
    }
    return false;
  }

  bool Sooner(size_t i) {
    for (size_t before = 0; before < i; ++before) {
      if ((*moves_)[before].from != (*moves_)[i].from) continue;
      tried_ = *moves_;
      std::swap(tried_[before], tried_[i]);
      if (TakeTried()) return true;
    }
    return false;
  }

  bool TakeTried() {
    if (left_ == 0) return false;
    left_ -= std::min<uint64_t>(left_, tried_.size() + 1);
    const uint64_t time = makespan_.Of(tried_, time_);
    if (time == Makespan::kTooLong) return false;
    time_ = time;
    std::swap(*moves_, tried_);
    delaying_ = makespan_.Delaying(*moves_);
    return true;
  }

  Makespan& makespan_;
  const uint32_t least_;
  uint64_t left_ = 0;
  uint64_t time_ = 0;
  uint32_t delaying_ = 0;
  std::vector<PlacedMove>* moves_ = nullptr;
  std::vector<PlacedMove> tried_;
};

// Returns BalanceOptions::there; empty if no device has another's weights.
std::vector<uint8_t> WhoHas(const Batch& batch, const Holdings& holdings) {
  std::vector<uint8_t> there(batch.devices * batch.tokens.size());
  bool some = false;
  for (uint32_t device = 0; device < batch.devices; ++device) {
    for (const Slot& slot : holdings.slots[device]) {
      if (slot.expert == Slot::kNone) continue;
      there[device * batch.tokens.size() + slot.expert] = 1;
      some = true;
    }
  }
  if (!some) there.clear();
  return there;
}

}  // namespace

std::vector<PlacedMove> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                    const Shape& shape, const Speeds& speeds,
                                    const Holdings& holdings) {
  const auto with = [&](const BalanceOptions& some) {
    return PlaceMoves(batch, BalanceMoves(batch, some), holdings.slots, shape.rows);
  };
  BalanceOptions fewer = options;
  fewer.budget.slots = shape.slots;
  std::vector<PlacedMove> best = with(fewer);
  if (best.empty() || speeds.row == 0 || speeds.kib == 0) return best;
  Makespan makespan(batch, shape, speeds, holdings.stay);
  uint64_t least = makespan.Of(best);
  const uint64_t free = Makespan(batch, shape, {speeds.row, 0, 0}, holdings.stay).Of(best);
  // Copies do not delay the round, so moving whole experts is better than moving fewer.
  if (least * 100 <= free * kHidden) return best;
  const auto most = static_cast<uint32_t>(best.size());
  if (const uint64_t none = makespan.Of({}); none < least) {
    least = none;
    best.clear();
  }
  Trim trim(makespan, shape.least);
  const auto try_with = [&](uint32_t copies) {
    fewer.budget.copies = copies;
    std::vector<PlacedMove> moves = with(fewer);
    const uint64_t time = trim.Run(&moves);
    if (time >= least) return;
    least = time;
    best = std::move(moves);
  };
  fewer.there = WhoHas(batch, holdings);
  trim.Allow(kLooks);
  // Small budgets come first: with slow copies they are good, and they are cheap to evaluate.
  for (uint32_t copies = 0; copies <= most && !trim.spent(); copies += 1 + copies / 4) {
    try_with(copies);
  }
  return best;
}

NodePlan PlanNode(std::span<const Posting> postings, const Shape& shape) {
  NodePlan plan;
  Batch batch;
  batch.devices = static_cast<uint32_t>(postings.size());
  BalanceOptions options;
  Holdings holdings;
  holdings.stay = true;
  for (uint32_t rank = 0; rank < batch.devices; ++rank) {
    const Posting& posting = postings[rank];
    batch.tokens.insert(batch.tokens.end(), posting.tokens.begin(), posting.tokens.end());
    batch.dynamic.insert(batch.dynamic.end(), posting.dynamic.begin(), posting.dynamic.end());
    batch.owner.insert(batch.owner.end(), shape.experts, rank);
    options.budget.copies = std::min(options.budget.copies, posting.copies);
    plan.speeds.row = std::max(plan.speeds.row, posting.speeds.row);
    plan.speeds.kib = std::max(plan.speeds.kib, posting.speeds.kib);
    plan.speeds.start = std::max(plan.speeds.start, posting.speeds.start);
    holdings.slots.push_back(posting.slots);
    holdings.stay = holdings.stay && posting.stay;
  }
  options.gate_percent = shape.gate_percent;
  options.least = shape.least;
  plan.stay = holdings.stay;
  plan.moves = ChooseMoves(batch, options, shape, plan.speeds, holdings);
  return plan;
}

}  // namespace rewire::moe
