#include "reconfig/moe/exec/makespan.h"

#include <algorithm>

namespace rewire::moe {
namespace {

// So many hundredths of what a round takes at least are not worth another plan.
constexpr uint64_t kHidden = 102;
constexpr int kPasses = 4;

struct Device {
  uint64_t first = 0;     // rows computed first: they stay whatever is planned
  uint64_t last = 0;      // and last: of dynamic experts, kept
  uint64_t received = 0;  // rows
  uint64_t given_at = 0;  // when the last copy to a helper has left
  uint64_t arrived = 0;   // when all that it computes for others is there
  uint64_t returned = 0;  // when what others computed for it is back
};

class Model {
 public:
  Model(const Batch& batch, const Shape& shape, const Speeds& speeds)
      : batch_(batch), shape_(shape), speeds_(speeds) {}

  // factor: of a row's time. rows, back_rows: how often a row's bytes go out and come back; grads:
  // that go back with them.
  [[nodiscard]] uint64_t Take(const std::vector<Stowed>& moves, uint64_t factor, uint64_t rows,
                              uint64_t grads) const {
    std::vector<Device> devices(batch_.devices);
    for (size_t e = 0; e < batch_.tokens.size(); ++e) {
      Device& owner = devices[batch_.owner[e]];
      (batch_.dynamic[e] != 0 ? owner.last : owner.first) += batch_.tokens[e];
    }
    for (const Stowed& s : moves) {
      Device& owner = devices[s.from];
      Device& helper = devices[s.move.to];
      owner.given_at += Copy(shape_.weight_bytes + rows * s.move.tokens * shape_.token_bytes);
      helper.arrived = std::max(helper.arrived, owner.given_at);
      helper.received += s.move.tokens;
      owner.last -= s.move.tokens;
    }
    const uint64_t row = factor * speeds_.row;
    std::vector<uint64_t> back(batch_.devices);
    for (size_t d = 0; d < devices.size(); ++d) back[d] = Computed(devices[d], row);
    for (const Stowed& s : moves) {
      back[s.move.to] += Copy(grads + s.move.tokens * shape_.token_bytes);
      devices[s.from].returned = std::max(devices[s.from].returned, back[s.move.to]);
    }
    uint64_t last = 0;
    for (const Device& d : devices) {
      last = std::max({last, Computed(d, row) + d.last * row, d.returned});
    }
    return last;
  }

 private:
  [[nodiscard]] uint64_t Copy(uint64_t bytes) const { return bytes / 1024 * speeds_.kib; }
  // When the device has computed for others.
  [[nodiscard]] static uint64_t Computed(const Device& d, uint64_t row) {
    const uint64_t begin = d.first * row;
    return d.received == 0 ? begin : std::max(begin, d.arrived) + d.received * row;
  }

  const Batch& batch_;
  const Shape& shape_;
  const Speeds& speeds_;
};

// Moves fewer tokens, or none, wherever that makes the round shorter. What is in the way is mostly
// the last device's last move.
void Trim(const Batch& batch, const Shape& shape, const Speeds& speeds, uint64_t* least,
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
        const uint64_t time = Makespan(batch, fewer, shape, speeds);
        if (time >= *least) continue;
        *least = time;
        *moves = std::move(fewer);
        better = true;
        break;
      }
    }
  }
}

}  // namespace

uint64_t Makespan(const Batch& batch, const std::vector<Stowed>& moves, const Shape& shape,
                  const Speeds& speeds) {
  const Model model(batch, shape, speeds);
  const uint64_t forward = model.Take(moves, 1, 1, 0);
  return shape.grad_bytes == 0 ? forward : forward + model.Take(moves, 2, 2, shape.grad_bytes);
}

std::vector<Stowed> ChooseMoves(const Batch& batch, const BalanceOptions& options,
                                const Shape& shape, const Speeds& speeds) {
  const auto with = [&](uint32_t copies) {
    BalanceOptions fewer = options;
    fewer.budget.copies = copies;
    fewer.budget.slots = shape.slots;
    return Stow(batch, BalanceMoves(batch, fewer), shape.slots, shape.rows);
  };
  std::vector<Stowed> best = with(options.budget.copies);
  if (best.empty() || speeds.row == 0 || speeds.kib == 0) return best;
  uint64_t least = Makespan(batch, best, shape, speeds);
  const uint64_t free = Makespan(batch, best, shape, {speeds.row, 0});
  if (least * 100 <= free * kHidden) return best;
  Trim(batch, shape, speeds, &least, &best);
  for (auto copies = static_cast<uint32_t>(best.size()); copies > 0;) {
    copies = copies > 4 ? copies * 3 / 4 : copies - 1;
    std::vector<Stowed> fewer;
    if (copies > 0) fewer = with(copies);
    uint64_t time = Makespan(batch, fewer, shape, speeds);
    Trim(batch, shape, speeds, &time, &fewer);
    if (time >= least) continue;
    least = time;
    best = std::move(fewer);
  }
  return best;
}

}  // namespace rewire::moe
