#include "net_plugin/socket/split_choice.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace rewire::net {
namespace {

constexpr size_t kSmallestBits = 18;  // the smallest size class is 128 KiB to less than 256 KiB
constexpr int kBetweenTrials = 32;
constexpr double kBegin = 0.8;  // splitting begins below this share of the unsplit time
constexpr double kStay = 0.9;   // splitting ends above this share

}  // namespace

double SplitChoice::Times::Median() const {
  std::array<double, kTrial - 1> sorted = times_;
  std::nth_element(sorted.begin(), sorted.begin() + sorted.size() / 2, sorted.end());
  return sorted[sorted.size() / 2];
}

SplitChoice::Kind& SplitChoice::KindOf(size_t bytes) {
  const auto bits = static_cast<size_t>(std::bit_width(bytes));
  return kinds_[std::min(bits - std::min(bits, kSmallestBits), kinds_.size() - 1)];
}

bool SplitChoice::Next(size_t bytes) {
  Kind& k = KindOf(bytes);
  if (k.to_try == 0) return k.split;
  --k.to_try;
  return !k.split;
}

void SplitChoice::Add(size_t bytes, bool split, Duration took) {
  Kind& k = KindOf(bytes);
  const double time = static_cast<double>(ToNanoseconds(took)) / static_cast<double>(bytes);
  if (split == k.split) {
    k.chosen.Add(time);
    k.until_trial -= took;
    if (k.to_come > 0 || !k.chosen.full() || k.until_trial > Duration::zero()) return;
    k.to_try = k.to_come = kTrial;
    k.trial = Duration::zero();
    k.other.Clear();
  } else if (k.to_come > 0) {
    k.trial += took;
    if (k.to_come-- < kTrial) k.other.Add(time);
    if (k.to_come == 0) Decide(&k);
  }
}

void SplitChoice::Decide(Kind* k) {
  k->until_trial = kBetweenTrials * k->trial;
  const double whole = (k->split ? k->other : k->chosen).Median();
  const double split = (k->split ? k->chosen : k->other).Median();
  if ((split < (k->split ? kStay : kBegin) * whole) == k->split) return;
  k->split = !k->split;
  std::swap(k->chosen, k->other);
}

}  // namespace rewire::net
