// Compares our declarations of the CUDA driver's types with this machine's cuda.h.
#include <gtest/gtest.h>

#include <string_view>

#include "tests/unit/abi/facts.h"

namespace rewire::abi {
namespace {

TEST(CudaTypes, EqualToTheInstalledHeader) {
  const auto ours = OurCudaFacts();
  const auto theirs = InstalledCudaFacts();
  if (theirs.empty()) GTEST_SKIP() << "no cuda.h of CUDA 12.8 or later here: nothing to compare";
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_STREQ(ours[i].name, theirs[i].name);
    EXPECT_EQ(ours[i].value, theirs[i].value) << ours[i].name;
  }
}

TEST(CudaTypes, SizesOfWhatCrossesTheBoundary) {
  for (const Fact& fact : OurCudaFacts()) {
    const std::string_view name = fact.name;
    if (name == "sizeof CUipcMemHandle") {
      EXPECT_EQ(fact.value, 64);
    } else if (name == "sizeof CUdeviceptr" || name == "sizeof CUstream") {
      EXPECT_EQ(fact.value, 8);
    } else if (name == "sizeof CUmemcpyAttributes") {
      EXPECT_EQ(fact.value, 24);
    } else if (name == "sizeof CUmemAllocationProp") {
      EXPECT_EQ(fact.value, 32);
    }
  }
}

}  // namespace
}  // namespace rewire::abi
