// NcclCalls tells the core the properties of NCCL's version. The tests use the first and the last
// version whose sources were examined.
#include "shim/core/environment.h"

#include <gtest/gtest.h>

#include "shim/preload/real_nccl.h"

namespace rewire::shim {
namespace {

NcclCalls CallsOf(int version) {
  RealNccl real{};
  real.version = version;
  real.GroupSimulateEnd = [](ncclSimInfo_t*) { return ncclSuccess; };
  return NcclCalls::From(real);
}

TEST(NcclCallsTest, InterruptsInitialisationsOf2223To230) {
  EXPECT_FALSE(CallsOf(22202).abort_frees_at_group_end);
  EXPECT_TRUE(CallsOf(22203).abort_frees_at_group_end);
  EXPECT_TRUE(CallsOf(23007).abort_frees_at_group_end);
  EXPECT_TRUE(CallsOf(23099).abort_frees_at_group_end);
  EXPECT_FALSE(CallsOf(23100).abort_frees_at_group_end);
}

TEST(NcclCallsTest, UsesGroupSimulateEndFrom2223) {
  EXPECT_EQ(CallsOf(22202).GroupSimulateEnd, nullptr);
  EXPECT_NE(CallsOf(22203).GroupSimulateEnd, nullptr);
}

}  // namespace
}  // namespace rewire::shim
