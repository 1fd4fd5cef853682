// Fixed point, bfloat16, random numbers, the optimizer.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "bench/trainer/bfloat16.h"
#include "bench/trainer/fixed_point.h"
#include "bench/trainer/optimizer.h"
#include "bench/trainer/rng.h"

namespace rewire::trainer {
namespace {

TEST(FixedPoint, SumsDoNotDependOnTheirOrder) {
  int64_t forward = 0, backward = 0;
  FixedSquares squares_forward, squares_backward;
  const RandomKey key(1, {1});
  for (int i = 0; i < 1000; ++i) {
    const double a = key.Normal(i) * std::pow(10.0, i % 7 - 4);
    const double b = key.Normal(999 - i) * std::pow(10.0, (999 - i) % 7 - 4);
    forward += ToFixed(a);
    backward += ToFixed(b);
    squares_forward.Add(a);
    squares_backward.Add(b);
  }
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(squares_forward.Root(), squares_backward.Root());
}

TEST(FixedPoint, RoundsSaturatesAndIgnoresWhatIsNotFinite) {
  EXPECT_NEAR(FromFixed(ToFixed(-1.234567)), -1.234567, 0x1p-40);
  EXPECT_EQ(ToFixed(1e30), ToFixed(0x1p10));
  EXPECT_EQ(ToFixed(std::numeric_limits<double>::quiet_NaN()), 0);
  FixedSquares s;
  s.Add(3);
  s.Add(4e-3);
  EXPECT_NEAR(s.Root(), std::sqrt(9 + 16e-6), 1e-9);
  s.Add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_GT(s.Root(), 1e5);
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.0f)), 1.0f);
  EXPECT_EQ(ToBfloat16(1.0f + 0x1p-8f), ToBfloat16(1.0f));              // a tie, down to even
  EXPECT_EQ(FromBfloat16(ToBfloat16(1.0f + 0x3p-8f)), 1.0f + 0x1p-6f);  // a tie, up to even
  EXPECT_TRUE(std::isnan(FromBfloat16(ToBfloat16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(FromBfloat16(ToBfloat16(std::numeric_limits<float>::infinity()))));
}

TEST(RandomKey, DependsOnEveryPartOfThePath) {
  const uint64_t base = RandomKey(1, {2, 3}).Bits(4);
  EXPECT_EQ(base, RandomKey(1, {2, 3}).Bits(4));
  for (const uint64_t other :
       {RandomKey(9, {2, 3}).Bits(4), RandomKey(1, {9, 3}).Bits(4), RandomKey(1, {2, 9}).Bits(4),
        RandomKey(1, {2, 3}).Bits(9), RandomKey(1, {3, 2}).Bits(4)}) {
    EXPECT_NE(base, other);
  }
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double x = RandomKey(1, {2}).Normal(i);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
}

TEST(Schedule, RisesThenFallsToATenth) {
  const Schedule s{1.0, 10, 100};
  EXPECT_DOUBLE_EQ(s.RateAt(0), 0.1);
  EXPECT_DOUBLE_EQ(s.RateAt(9), 1.0);
  EXPECT_LT(s.RateAt(50), s.RateAt(20));
  EXPECT_NEAR(s.RateAt(100), 0.1, 1e-12);
  EXPECT_NEAR(s.RateAt(100000), 0.1, 1e-12);
}

TEST(AdamW, FirstStepIsTheRateAgainstTheSign) {
  const AdamStep s = AdamStep::At({0.5, 1, 10}, 0, 0, 0, 0.1);
  std::vector<float> master = {1, 1, 2}, first(3), second(3);
  const std::vector<float> gradient = {3, -3, 0};
  const std::vector<uint8_t> decays = {0, 0, 1};
  AdamUpdate(s, gradient, decays, master, first, second);
  EXPECT_NEAR(master[0], 0.5, 1e-5);
  EXPECT_NEAR(master[1], 1.5, 1e-5);
  EXPECT_NEAR(master[2], 2 - 0.5 * 0.1 * 2, 1e-5);
}

TEST(AdamW, ClipsByTheGlobalNorm) {
  EXPECT_EQ(AdamStep::At({}, 5, 1, 4, 0).scale, 0.25f);
  EXPECT_EQ(AdamStep::At({}, 5, 1, 0.5, 0).scale, 1.0f);
  EXPECT_EQ(AdamStep::At({}, 5, 0, 4, 0).scale, 1.0f);
}

TEST(Ballast, ChangesTheSameWayInAnyDivision) {
  std::vector<float> whole(1001), parts(1001);
  for (size_t i = 0; i < whole.size(); ++i) whole[i] = parts[i] = BallastInitial(i);
  const std::vector<float> before = whole;
  BallastUpdate(3, 0, whole);
  BallastUpdate(3, 0, std::span(parts).first(333));
  BallastUpdate(3, 333, std::span(parts).subspan(333));
  EXPECT_EQ(whole, parts);
  size_t changed = 0;
  for (size_t i = 0; i < whole.size(); ++i) changed += whole[i] != before[i] ? 1 : 0;
  EXPECT_GT(changed, 990u);
}

}  // namespace
}  // namespace rewire::trainer
