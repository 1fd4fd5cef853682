// The counters of several libraries in one process.
#include "reconfig/elastic/participant/process.h"

#include <gtest/gtest.h>

#include "reconfig/base/counters.h"

namespace rewire::elastic {
namespace {

size_t OfTheNetPlugin(CounterValue* out, size_t room) {
  if (room < 2) return 0;
  out[0] = {static_cast<uint16_t>(Counter::kNetLinksMade), 3};
  out[1] = {static_cast<uint16_t>(Counter::kNetStrangers), 1};
  return 2;
}

size_t OfExperts(CounterValue* out, size_t) {
  out[0] = {static_cast<uint16_t>(Counter::kMoeRounds), 9};
  return 1;
}

TEST(ProcessCountersTest, IncludesEachLibraryOnce) {
  Count(Counter::kShimSwaps, 2);
  const size_t own = ProcessCounters().size();
  for (int i = 0; i < 20; ++i) {
    rewire_add_counters(OfTheNetPlugin);
    rewire_add_counters(OfExperts);
  }
  const std::vector<CounterValue> all = ProcessCounters();
  EXPECT_EQ(all.size(), own + 3);
  EXPECT_EQ(ValueIn(all, Counter::kShimSwaps), 2u);
  EXPECT_EQ(ValueIn(all, Counter::kNetLinksMade), 3u);
  EXPECT_EQ(ValueIn(all, Counter::kNetStrangers), 1u);
  EXPECT_EQ(ValueIn(all, Counter::kMoeRounds), 9u);
}

}  // namespace
}  // namespace rewire::elastic
