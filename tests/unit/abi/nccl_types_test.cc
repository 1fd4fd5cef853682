// Compares our declarations of NCCL's types with this machine's nccl.h.
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/abi/facts.h"

namespace rewire::abi {
namespace {

TEST(NcclTypes, EqualToTheInstalledHeader) {
  const auto ours = OurNcclFacts();
  const auto theirs = InstalledNcclFacts();
  if (theirs.empty()) GTEST_SKIP() << "no nccl.h of NCCL 2.28 on this machine: nothing to compare";
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_STREQ(ours[i].name, theirs[i].name);
    EXPECT_EQ(ours[i].value, theirs[i].value) << ours[i].name;
  }
}

TEST(NcclTypes, SizesThatEveryVersionHas) {
  for (const Fact& fact : OurNcclFacts()) {
    if (std::string(fact.name) == "sizeof(ncclUniqueId)") {
      EXPECT_EQ(fact.value, 128);
    }
  }
}

}  // namespace
}  // namespace rewire::abi
