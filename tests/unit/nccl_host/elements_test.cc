// The arithmetic of device functions, and their names.
#include "tests/nccl_host/kernels/elements.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/nccl_host/kernels/kernel.h"

namespace nccl_host {
namespace {

template <typename T>
T Combined(const char* name, uint64_t operand, T a, T b) {
  const Elements elements(*ParseFunction(name), operand);
  if (elements.has_pre()) elements.Pre(reinterpret_cast<char*>(&a), 1);
  elements.Combine(reinterpret_cast<char*>(&a), reinterpret_cast<const char*>(&b), 1);
  if (elements.has_post()) elements.Post(reinterpret_cast<char*>(&a), 1);
  return a;
}

TEST(ElementsTest, MinimumAndMaximumOfIntegersFollowTheMask) {
  constexpr const char* kName = "ncclDevFunc_AllReduce_MinMax_u32_RING_LL";
  constexpr uint64_t kAll = 0xffffffff, kSign = 0x80000000;
  EXPECT_EQ(Combined<uint32_t>(kName, 0, 3, 0xfffffff0), 3u);
  EXPECT_EQ(Combined<uint32_t>(kName, kAll, 3, 0xfffffff0), 0xfffffff0u);
  EXPECT_EQ(Combined<int32_t>(kName, kSign, 3, -16), -16);
  EXPECT_EQ(Combined<int32_t>(kName, kSign ^ kAll, 3, -16), 3);
}

TEST(ElementsTest, MinimumAndMaximumOfFloatsFollowTheFirstBit) {
  constexpr const char* kName = "ncclDevFunc_AllReduce_MinMax_f32_TREE_SIMPLE";
  EXPECT_EQ(Combined<float>(kName, 0, 2.0F, -1.0F), -1.0F);
  EXPECT_EQ(Combined<float>(kName, 1, 2.0F, -1.0F), 2.0F);
}

TEST(ElementsTest, AverageOfIntegersDividesAfterTheSum) {
  constexpr const char* kName = "ncclDevFunc_AllReduce_SumPostDiv_u64_RING_SIMPLE";
  EXPECT_EQ(Combined<uint64_t>(kName, 2 << 1, 7, 8), 7u);
  EXPECT_EQ(Combined<int64_t>(kName, 2 << 1 | 1, -7, -8), -7);
}

TEST(ElementsTest, ScaledSumScalesThisRanksInput) {
  constexpr uint64_t kHalf = 0x3f000000;  // 0.5f
  EXPECT_EQ(Combined<float>("ncclDevFunc_AllReduce_PreMulSum_f32_RING_LL128", kHalf, 6.0F, 1.0F),
            4.0F);
}

TEST(FunctionTest, NamesSayCollectiveOperatorTypeAlgorithmAndProtocol) {
  const auto function = ParseFunction("ncclDevFunc_ReduceScatter_PreMulSum_bf16_RING_LL128");
  ASSERT_TRUE(function.has_value());
  EXPECT_EQ(function->collective, Collective::kReduceScatter);
  EXPECT_EQ(function->op, DeviceOp::kPreMulSum);
  EXPECT_EQ(function->type, ncclBfloat16);
  EXPECT_FALSE(function->tree);
  EXPECT_EQ(function->protocol, kLL128);
  EXPECT_TRUE(ParseFunction("ncclDevFunc_SendRecv").has_value());
  EXPECT_TRUE(ParseFunction("ncclDevFunc_AllReduce_Sum_f32_TREE_LL")->tree);
}

TEST(FunctionTest, FunctionsThatAreNotEmulatedHaveNoDescription) {
  EXPECT_FALSE(ParseFunction("ncclDevFunc_AllReduce_Sum_f32_NVLS_SIMPLE").has_value());
  EXPECT_FALSE(ParseFunction("ncclDevFunc_AllGather_PAT_SIMPLE").has_value());
  EXPECT_FALSE(ParseFunction("ncclDevFunc_AllReduce_Sum_f32_COLLNET_DIRECT_SIMPLE").has_value());
  EXPECT_FALSE(ParseFunction("").has_value());
}

TEST(FunctionDeathTest, UnknownVersionIsRefusedByName) {
  const char* name = "ncclDevFunc_SendRecv";
  EXPECT_DEATH(static_cast<void>(FunctionTable(21900, &name, 1)), "version=21900");
}

}  // namespace
}  // namespace nccl_host
