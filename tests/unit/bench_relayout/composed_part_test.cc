#include "bench/moe/composed_part.h"

#include <gtest/gtest.h>

namespace rewire::bench {
namespace {

// Returns means over seeds.
Composed Measure(const ComposedSetup& setup) {
  constexpr int kSeeds = 32;
  Composed mean;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto c = MeasureComposed(setup, seed, 3);
    EXPECT_TRUE(c.ok()) << c.status();
    if (!c.ok()) break;
    mean.fixed += c->fixed / kSeeds;
    mean.laer += c->laer / kSeeds;
    mean.relayout += c->relayout / kSeeds;
    mean.ours += c->ours / kSeeds;
    EXPECT_LE(c->our_bytes, c->greedy_bytes);
    EXPECT_LE(c->ours, c->relayout);
  }
  return mean;
}

TEST(ComposedPartTest, LayersAreAsUnevenAsLaersAuthorsMeasuredAndEvenWhenComposed) {
  const Composed e8k2 = Measure(E8K2());
  EXPECT_NEAR(e8k2.fixed, 1.664, 0.1);
  EXPECT_NEAR(e8k2.laer, 1.413, 0.1);
  EXPECT_LT(e8k2.relayout, e8k2.laer + 0.01);
  EXPECT_LE(e8k2.ours, 1.05);
  const Composed e16k4 = Measure(E16K4());
  EXPECT_NEAR(e16k4.fixed, 1.729, 0.1);
  EXPECT_NEAR(e16k4.laer, 1.288, 0.1);
  EXPECT_LT(e16k4.relayout, e16k4.laer + 0.01);
  EXPECT_LE(e16k4.ours, 1.05);
}

}  // namespace
}  // namespace rewire::bench
