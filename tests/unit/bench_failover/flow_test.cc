// In this program the core finds the in-memory devices of tests/unit/net_plugin.
#include "bench/failover/flow.h"

#include <gtest/gtest.h>

namespace rewire::bench {
namespace {

TEST(Flow, CarriesAsManyAsItIsAskedTo) {
  const absl::StatusOr<net::Net*> net = net::Net::Get();
  ASSERT_TRUE(net.ok()) << net.status();
  const auto flow = Flow::Connect(*net, 0, 1);
  ASSERT_TRUE(flow.ok()) << flow.status();

  const auto few = (*flow)->Carry(20);
  ASSERT_TRUE(few.ok()) << few.status();
  EXPECT_EQ(few->size(), 20U);

  int asked = 0;
  const auto more = (*flow)->Carry(5, [&asked] { return ++asked <= 30; });
  ASSERT_TRUE(more.ok()) << more.status();
  EXPECT_EQ(more->size(), 35U);

  EXPECT_EQ((*flow)->arrivals().next(), 55U);
  EXPECT_TRUE((*flow)->arrivals().flawless());
  EXPECT_EQ((*flow)->errors(), 0U);
}

}  // namespace
}  // namespace rewire::bench
