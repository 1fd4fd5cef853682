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
               "REWIRE ERROR check check_test.cc:[0-9]+: condition is false: evaluated == 2");
}

TEST(CheckDeathTest, IsActiveInTests) {
  EXPECT_DEATH(REWIRE_DCHECK(false), "condition is false: false");
}

}  // namespace
}  // namespace rewire
