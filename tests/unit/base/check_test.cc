// A failed check ends the process and names its condition and place.
#include "reconfig/base/check.h"

#include <gtest/gtest.h>

namespace rewire {
namespace {

TEST(CheckDeathTest, NamesConditionAndPlace) {
  int evaluated = 0;
  REWIRE_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
  EXPECT_DEATH(REWIRE_CHECK(evaluated == 2),
               "REWIRE ERROR defect at check_test.cc:[0-9]+: not true: evaluated == 2");
}

TEST(CheckDeathTest, IsActiveInTests) { EXPECT_DEATH(REWIRE_DCHECK(false), "not true: false"); }

}  // namespace
}  // namespace rewire
