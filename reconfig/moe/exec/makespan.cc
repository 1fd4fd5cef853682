#include "reconfig/moe/exec/makespan.h"

#include <algorithm>
#include <numeric>

#include "reconfig/moe/exec/turns.h"

namespace rewire::moe {
namespace {

// So many hundredths of what a round takes at least are not worth another plan.
constexpr uint64_t kHidden = 102;
constexpr int kPasses = 4;
// A plan that comes too late is none (BalancerOptions::patience). So many moves are looked at for
// one, half of them without regard to where weights are: a quarter of a millisecond at most with 16
// devices. A count and not a time, so that all plan alike.
constexpr uint64_t kLooks = 4000;

uint64_t CopyTime(uint64_t bytes, const Speeds& speeds) { return bytes / 1024 * speeds.kib; }

class Model {
 public:
  Model(const Batch& batch, const Shape& shape, const Speeds& speeds, bool stay)
      : shape_(shape), speeds_(speeds), stay_(stay), statics_(batch.devices), rows_(batch.devices) {
    for (size_t e = 0; e < batch.tokens.size(); ++e) {
      rows_[batch.owner[e]] += batch.tokens[e];
      if (batch.dynamic[e] == 0) statics_[batch.owner[e]] += batch.tokens[e];
    }
  }

  // How many moves may still be looked at.
  void Allow(uint64_t looks) { left_ = looks; }
  [[nodiscard]] bool spent() const { return left_ == 0; }

  [[nodiscard]] uint64_t Take(const std::vector<Stowed>& moves) {
    left_ -= std::min<uint64_t>(left_, moves.size() + 1);
    return Take(moves, false) + (shape_.grad_bytes == 0 ? 0 : Take(moves, true));
  }

 private:
  struct Device {
    uint64_t now = 0;
    uint64_t own = 0;       // time for own rows that are not computed yet
    uint64_t over = 0;      // an own expert's rows are not interrupted: half of one
    uint64_t back = 0;      // when what it has computed for others is back
    uint64_t returned = 0;  // when what others computed for it is
  };

  [[nodiscard]] uint64_t Take(const std::vector<Stowed>& moves, bool backward) const {
    const uint64_t row = (backward ? 2 : 1) * uint64_t{speeds_.row};
    std::vector<Device> devices(rows_.size());
    for (size_t d = 0; d < devices.size(); ++d) {
      devices[d].now = statics_[d] * row / kAtOnce;
      devices[d].own = rows_[d] * row - devices[d].now;
    }
    for (const Stowed& s : moves) devices[s.from].own -= s.move.tokens * row;
    for (Device& d : devices) d.over = (d.now + d.own) / (2 * shape_.experts);
    const std::vector<uint64_t> arrivals = Arrivals(moves, shape_, speeds_, backward, stay_);
    std::vector<uint32_t> order(moves.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(arrivals[a], a) < std::pair(arrivals[b], b);
    });
    for (const uint32_t i : order) {
      const Stowed& s = moves[i];
      Device& d = devices[s.move.to];
      if (d.now < arrivals[i]) {
        const uint64_t fill = std::min(d.own, arrivals[i] - d.now + d.over);
        d.own -= fill;
        d.now = std::max(d.now + fill, arrivals[i]);
      }
      d.now += s.move.tokens * row;
      const uint64_t bytes = s.move.tokens * shape_.token_bytes;
      d.back =
          std::max(d.back, d.now) + CopyTime(bytes + (backward ? shape_.grad_bytes : 0), speeds_);
      devices[s.from].returned = std::max(devices[s.from].returned, d.back);
    }
    uint64_t last = 0;
    for (const Device& d : devices) last = std::max({last, d.now + d.own, d.returned});
    return last;
  }

  const Shape& shape_;
  const Speeds& speeds_;
  const bool stay_;
  uint64_t left_ = 0;
  std::vector<uint64_t> statics_, rows_;  // of each device
};

// Moves fewer tokens, or none, or sends in another order, wherever that makes the round shorter.
// What is in the way is mostly the last device's last move.
class Trim {
 public:
  Trim(Model& model, uint32_t least_tokens, uint64_t* time, std::vector<Stowed>* moves)
      : model_(model), least_tokens_(least_tokens), time_(*time), moves_(*moves) {}

  void Run() {
    bool better = true;
    for (int pass = 0; better && pass < kPasses; ++pass) {
      better = false;
      for (size_t i = moves_.size(); i-- > 0;) better = Fewer(i) || Sooner(i) || better;
    }
  }

 private:
  bool Fewer(size_t i) {
    for (const uint32_t eighths : {7U, 6U, 4U, 0U}) {
      std::vector<Stowed> fewer = moves_;
      fewer[i].move.tokens = moves_[i].move.tokens * eighths / 8;
      if (eighths != 0 && fewer[i].move.tokens < least_tokens_) continue;
      if (fewer[i].move.tokens == 0) fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
      if (Take(std::move(fewer))) return true;
    }
    return false;
  }

  bool Sooner(size_t i) {
    for (size_t before = 0; before < i; ++before) {
      if (moves_[before].from != moves_[i].from) continue;
      std::vector<Stowed> swapped = moves_;
      std::swap(swapped[before], swapped[i]);
      if (Take(std::move(swapped))) return true;
    }
    return false;
  }

  bool Take(std::vector<Stowed> moves) {
    if (model_.spent()) return false;
    const uint64_t time = model_.Take(moves);
    if (time >= time_) return false;
    time_ = time;
    moves_ = std::move(moves);
    return true;
  }

  Model& model_;
  const uint32_t least_tokens_;
  uint64_t& time_;
  std::vector<Stowed>& moves_;
};

// As BalanceOptions::there.
std::vector<uint8_t> WhoHas(const Batch& batch, const Holdings& holdings) {
  std::vector<uint8_t> there(batch.devices * batch.tokens.size());
  for (uint32_t device = 0; device < batch.devices; ++device) {
    for (const Slot& slot : holdings.slots[device]) {
      if (slot.expert != Slot::kNone) there[device * batch.tokens.size() + slot.expert] = 1;
    }
  }
  return there;
}

}  // namespace

std::vector<uint64_t> Arrivals(const std::vector<Stowed>& moves, const Shape& shape,
                               const Speeds& speeds, bool backward, bool stay) {
  std::vector<uint64_t> given(kMaxRanks);  // by each device, up to here
  std::vector<uint64_t> arrivals;
  for (const Stowed& s : moves) {
    const uint64_t rows = s.move.tokens * shape.token_bytes * (backward ? 2 : 1);
    const uint64_t weights = (backward ? stay : s.held) ? 0 : shape.weight_bytes;
    given[s.from] += CopyTime(weights + rows, speeds);
    arrivals.push_back(given[s.from]);
  }
  return arrivals;
}

uint64_t Makespan(const Batch& batch, const std::vector<Stowed>& moves, const Shape& shape,
                  const Speeds& speeds, bool stay) {
  return Model(batch, shape, speeds, stay).Take(moves);
}

std::vector<Stowed> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                const Shape& shape, const Speeds& speeds,
                                const Holdings& holdings) {
  const auto with = [&](const BalanceOptions& some) {
    return Stow(batch, BalanceMoves(batch, some), holdings.slots, shape.rows);
  };
  BalanceOptions fewer = options;
  fewer.budget.slots = shape.slots;
  std::vector<Stowed> best = with(fewer);
  if (best.empty() || speeds.row == 0 || speeds.kib == 0) return best;
  Model model(batch, shape, speeds, holdings.stay);
  uint64_t least = model.Take(best);
  const uint64_t free = Makespan(batch, best, shape, {speeds.row, 0}, holdings.stay);
  // Nothing waits for copies: then it is better to move whole experts than to move fewer.
  if (least * 100 <= free * kHidden) return best;
  const auto most = static_cast<uint32_t>(best.size());
  if (const uint64_t none = model.Take({}); none < least) {
    least = none;
    best.clear();
  }
  const auto try_with = [&](uint32_t copies) {
    fewer.budget.copies = copies;
    std::vector<Stowed> moves = with(fewer);
    uint64_t time = model.Take(moves);
    Trim(model, shape.least, &time, &moves).Run();
    if (time >= least) return;
    least = time;
    best = std::move(moves);
  };
  for (const bool held : {false, true}) {
    if (held) fewer.there = WhoHas(batch, holdings);
    model.Allow(kLooks / 2);
    uint32_t copies = most;
    for (try_with(copies); copies > 0 && !model.spent(); try_with(copies)) {
      copies = copies > 4 ? copies * 3 / 4 : copies - 1;
    }
  }
  return best;
}

}  // namespace rewire::moe
