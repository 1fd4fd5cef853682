#include "reconfig/moe/exec/makespan.h"

#include <algorithm>
#include <numeric>

namespace rewire::moe {
namespace {

uint64_t CopyTime(uint64_t bytes, const Speeds& speeds) { return bytes / 1024 * speeds.kib; }

// A backward round follows the plan of its forward round.
uint64_t Start(const Speeds& speeds, bool backward) { return backward ? 0 : speeds.start; }

uint64_t BytesOut(const PlacedMove& s, const Shape& shape, bool backward, bool stay) {
  const uint64_t rows = s.move.tokens * shape.token_bytes * (backward ? 2 : 1);
  return rows + ((backward ? stay : s.held) ? 0 : shape.weight_bytes);
}

}  // namespace

std::vector<uint64_t> Arrivals(std::span<const PlacedMove> moves, const Shape& shape,
                               const Speeds& speeds, bool backward, bool stay) {
  // given by each device, up to the current move
  std::vector<uint64_t> given(kMaxRanks, Start(speeds, backward));
  std::vector<uint64_t> arrivals;
  for (const PlacedMove& s : moves) {
    given[s.from] += CopyTime(BytesOut(s, shape, backward, stay), speeds);
    arrivals.push_back(given[s.from]);
  }
  return arrivals;
}

std::vector<Turn> TakeTurns(uint64_t at_once, std::span<const uint32_t> own_rows,
                            std::vector<Arrival> arrivals, uint64_t row) {
  std::stable_sort(arrivals.begin(), arrivals.end(),
                   [](const Arrival& a, const Arrival& b) { return a.at < b.at; });
  std::vector<Turn> turns;
  uint64_t now = at_once * row;
  std::vector<uint32_t> left(own_rows.size());  // own runs that are left, the largest first
  std::iota(left.begin(), left.end(), 0);
  std::stable_sort(left.begin(), left.end(),
                   [&](uint32_t a, uint32_t b) { return own_rows[a] > own_rows[b]; });
  const auto compute_own = [&](std::vector<uint32_t>::iterator own) {
    now += own_rows[*own] * row;
    turns.push_back({false, *own});
    left.erase(own);
  };
  for (const Arrival& arrival : arrivals) {
    while (!left.empty() && now < arrival.at) {
      const auto fits = std::find_if(left.begin(), left.end(), [&](uint32_t own) {
        return own_rows[own] * row <= arrival.at - now;
      });
      compute_own(fits != left.end() ? fits : left.end() - 1);
    }
    now = std::max(now, arrival.at) + arrival.rows * row;
    turns.push_back({true, arrival.index});
  }
  std::sort(left.begin(), left.end());
  while (!left.empty()) compute_own(left.begin());
  return turns;
}

Makespan::Makespan(const Batch& batch, const Shape& shape, const Speeds& speeds, bool stay)
    : shape_(shape), speeds_(speeds), stay_(stay), given_(batch.devices) {
  for (const bool backward : {false, true}) {
    if (backward && shape.grad_bytes == 0) break;
    Direction direction;
    direction.backward = backward;
    direction.row = (backward ? 2 : 1) * uint64_t{speeds.row};
    direction.begin.resize(batch.devices);
    for (size_t e = 0; e < batch.tokens.size(); ++e) {
      Device& d = direction.begin[batch.owner[e]];
      d.own += batch.tokens[e];
      if (batch.dynamic[e] == 0) d.now += batch.tokens[e];
    }
    for (Device& d : direction.begin) {
      d.now = d.now * direction.row / kAtOnce;
      d.all_own = d.own * direction.row;
      d.own = d.all_own - d.now;
    }
    directions_.push_back(std::move(direction));
  }
}

uint64_t Makespan::Of(std::span<const PlacedMove> moves, uint64_t limit) {
  uint64_t sum = 0;
  for (const Direction& direction : directions_) {
    const uint64_t time = Take(direction, moves, limit - sum);
    if (time == kTooLong) return kTooLong;
    sum += time;
  }
  return sum;
}

uint64_t Makespan::Take(const Direction& direction, std::span<const PlacedMove> moves,
                        uint64_t limit) {
  const uint64_t row = direction.row;
  devices_ = direction.begin;
  std::fill(given_.begin(), given_.end(), Start(speeds_, direction.backward));
  order_.clear();
  for (uint32_t i = 0; i < moves.size(); ++i) {
    const PlacedMove& s = moves[i];
    given_[s.from] += CopyTime(BytesOut(s, shape_, direction.backward, stay_), speeds_);
    order_.emplace_back(given_[s.from], i);
    devices_[s.from].own -= s.move.tokens * row;
    devices_[s.from].all_own -= s.move.tokens * row;
  }
  std::sort(order_.begin(), order_.end());
  const uint64_t grad = direction.backward ? shape_.grad_bytes : 0;
  for (const auto& [arrival, i] : order_) {
    const PlacedMove& s = moves[i];
    Device& d = devices_[s.move.to];
    if (d.now < arrival) {
      // An own expert's rows are not interrupted: on average, half of them delay the move.
      const uint64_t over = d.all_own / (uint64_t{2} * shape_.experts);
      const uint64_t fill = std::min(d.own, arrival - d.now + over);
      d.own -= fill;
      d.now = std::max(d.now + fill, arrival);
    }
    d.now += s.move.tokens * row;
    const uint64_t bytes = s.move.tokens * shape_.token_bytes;
    d.back = std::max(d.back, d.now) + CopyTime(bytes + grad, speeds_);
    if (d.back >= limit) return kTooLong;
    uint64_t& returned = devices_[s.from].returned;
    returned = std::max(returned, d.back);
  }
  uint64_t last = 0;
  for (const Device& d : devices_) last = std::max({last, d.now + d.own, d.returned});
  return last < limit ? last : kTooLong;
}

uint32_t Makespan::Last() const {
  uint32_t last = 0;
  uint64_t most = 0;
  for (uint32_t i = 0; i < devices_.size(); ++i) {
    const uint64_t end = std::max(devices_[i].now + devices_[i].own, devices_[i].returned);
    if (end <= most) continue;
    most = end;
    last = i;
  }
  return last;
}

uint32_t Makespan::Delaying(std::span<const PlacedMove> moves) {
  uint32_t delaying = 0;
  for (const Direction& direction : directions_) {
    (void)Take(direction, moves, kTooLong);
    const uint32_t last = Last();
    // The device itself, its helpers, and the devices that send to any of them.
    uint32_t waits_for = 1U << last;
    for (const PlacedMove& s : moves) {
      if (s.from == last) waits_for |= 1U << s.move.to;
    }
    delaying |= waits_for;
    for (const PlacedMove& s : moves) {
      if ((waits_for >> s.move.to & 1) != 0) delaying |= 1U << s.from;
    }
  }
  return delaying;
}

}  // namespace rewire::moe
