// A failed check ends the process and names its condition and place.
#include "reconfig/base/check.h"

#include <gtest/gtest.h>

#include <thread>

#include "reconfig/base/mutex.h"

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

TEST(OwnerThreadTest, IsTheThreadThatTook) {
  OwnerThread owner;
  EXPECT_FALSE(owner.IsThisThread());
  std::thread([&] {
    owner.Take();
    EXPECT_TRUE(owner.IsThisThread());
  }).join();
  EXPECT_FALSE(owner.IsThisThread());
}

}  // namespace
}  // namespace rewire
