#include "reconfig/moe/exec/makespan.h"

#include <algorithm>

#include "reconfig/moe/exec/turns.h"

namespace rewire::moe {
namespace {

// So many hundredths of what a round takes at least are not worth another plan.
constexpr uint64_t kHidden = 102;
constexpr int kPasses = 4;

struct Device {
  uint64_t first = 0;              // rows that stay whatever is planned
  uint64_t last = 0;               // of dynamic experts, kept
  std::vector<uint32_t> received;  // moves, as they arrive
  uint64_t returned = 0;           // when what others computed for it is back
};

uint64_t CopyTime(uint64_t bytes, const Speeds& speeds) { return bytes / 1024 * speeds.kib; }

class Model {
 public:
  Model(const Batch& batch, const Shape& shape, const Speeds& speeds, bool stay)
      : batch_(batch), shape_(shape), speeds_(speeds), stay_(stay) {}

  [[nodiscard]] uint64_t Take(const std::vector<Stowed>& moves, bool backward) const {
    std::vector<Device> devices(batch_.devices);
    for (size_t e = 0; e < batch_.tokens.size(); ++e) {
      Device& owner = devices[batch_.owner[e]];
      (batch_.dynamic[e] != 0 ? owner.last : owner.first) += batch_.tokens[e];
    }
    const std::vector<uint64_t> arrivals = Arrivals(moves, shape_, speeds_, backward, stay_);
    for (uint32_t i = 0; i < moves.size(); ++i) {
      devices[moves[i].from].last -= moves[i].move.tokens;
      devices[moves[i].move.to].received.push_back(i);
    }
    const uint64_t row = (backward ? 2 : 1) * uint64_t{speeds_.row};
    uint64_t last = 0;
    for (Device& helper : devices) {
      std::stable_sort(helper.received.begin(), helper.received.end(),
                       [&](uint32_t a, uint32_t b) { return arrivals[a] < arrivals[b]; });
      uint64_t now = helper.first * row / kAtOnce;
      uint64_t own = (helper.first + helper.last) * row - now;
      // An own expert's rows are not interrupted.
      const uint64_t over = (helper.first + helper.last) * row / (2 * shape_.experts);
      uint64_t back = 0;
      for (const uint32_t i : helper.received) {
        const Stowed& s = moves[i];
        if (now < arrivals[i]) {
          const uint64_t fill = std::min(own, arrivals[i] - now + over);
          own -= fill;
          now = std::max(now + fill, arrivals[i]);
        }
        now += s.move.tokens * row;
        const uint64_t bytes = s.move.tokens * shape_.token_bytes;
        back = std::max(back, now) + CopyTime(bytes + (backward ? shape_.grad_bytes : 0), speeds_);
        devices[s.from].returned = std::max(devices[s.from].returned, back);
      }
      last = std::max(last, now + own);
    }
    for (const Device& owner : devices) last = std::max(last, owner.returned);
    return last;
  }

 private:
  const Batch& batch_;
  const Shape& shape_;
  const Speeds& speeds_;
  const bool stay_;
};

// Moves fewer tokens, or none, wherever that makes the round shorter. What is in the way is mostly
// the last device's last move.
void Trim(const Batch& batch, const Shape& shape, const Speeds& speeds, bool stay, uint64_t* least,
          std::vector<Stowed>* moves) {
  bool better = true;
  for (int pass = 0; better && pass < kPasses; ++pass) {
    better = false;
    for (size_t i = moves->size(); i-- > 0;) {
      const uint32_t tokens = (*moves)[i].move.tokens;
      for (const uint32_t eighths : {7U, 6U, 4U, 0U}) {
        std::vector<Stowed> fewer = *moves;
        fewer[i].move.tokens = tokens * eighths / 8;
        if (eighths != 0 && fewer[i].move.tokens < shape.least) continue;
        if (fewer[i].move.tokens == 0) fewer.erase(fewer.begin() + static_cast<ptrdiff_t>(i));
        const uint64_t time = Makespan(batch, fewer, shape, speeds, stay);
        if (time >= *least) continue;
        *least = time;
        *moves = std::move(fewer);
        better = true;
        break;
      }
    }
  }
}

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
  const Model model(batch, shape, speeds, stay);
  return model.Take(moves, false) + (shape.grad_bytes == 0 ? 0 : model.Take(moves, true));
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
  const bool stay = holdings.stay;
  uint64_t least = Makespan(batch, best, shape, speeds, stay);
  const uint64_t free = Makespan(batch, best, shape, {speeds.row, 0}, stay);
  const std::vector<uint8_t> there = WhoHas(batch, holdings);
  if (least * 100 <= free * kHidden) {
    // Nothing waits for copies: fewer of them, where that is as good.
    fewer.there = there;
    const std::vector<Stowed> held = with(fewer);
    return Makespan(batch, held, shape, speeds, stay) <= least ? held : best;
  }
  const auto most = static_cast<uint32_t>(best.size());
  if (const uint64_t none = Makespan(batch, {}, shape, speeds, stay); none < least) {
    least = none;
    best.clear();
  }
  const auto try_with = [&](uint32_t copies) {
    fewer.budget.copies = copies;
    std::vector<Stowed> moves = with(fewer);
    uint64_t time = Makespan(batch, moves, shape, speeds, stay);
    Trim(batch, shape, speeds, stay, &time, &moves);
    if (time >= least) return;
    least = time;
    best = std::move(moves);
  };
  for (const bool held : {false, true}) {
    if (held) fewer.there = there;
    uint32_t copies = most;
    for (try_with(copies); copies > 0; try_with(copies)) {
      copies = copies > 4 ? copies * 3 / 4 : copies - 1;
    }
  }
  return best;
}

}  // namespace rewire::moe
