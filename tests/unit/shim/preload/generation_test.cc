// The program's calls and the core's polls never overlap; real values never move.
#include "shim/preload/generation.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace rewire::shim {
namespace {

TEST(CallersTest, PollIsRefusedWhileAThreadIsInside) {
  Callers callers;
  {
    const Calling outer(false, &callers);
    const Calling nested(false, &callers);
    EXPECT_FALSE(callers.TryExclude());
  }
  EXPECT_TRUE(callers.TryExclude());
  EXPECT_FALSE(callers.TryExclude());
  callers.Admit();
  const Calling blocking(true, &callers);  // not counted
  EXPECT_TRUE(callers.TryExclude());
  callers.Admit();
}

TEST(CallersTest, CallsAndPollsDoNotOverlap) {
  Callers callers;
  int value = 0;  // not atomic: ThreadSanitizer reports an overlap
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      for (int done = 0; done < 2000;) {
        if (!callers.TryExclude()) {
          std::this_thread::yield();
          continue;
        }
        ++value;
        callers.Admit();
        ++done;
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    const Calling calling(false, &callers);
    ++value;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(value, 6000);
}

TEST(RealValuesTest, KeepsManyValuesAndRefusesTheLargestIndex) {
  RealValues values;
  EXPECT_FALSE(values.Get(0).has_value());
  for (uint32_t i = 0; i < 5000; ++i) ASSERT_TRUE(values.Set(i, uint64_t{i} * 3));
  for (uint32_t i = 0; i < 5000; ++i) ASSERT_EQ(uint64_t{i} * 3, values.Get(i));
  EXPECT_FALSE(values.Get(UINT32_MAX).has_value());
  EXPECT_FALSE(values.Set(UINT32_MAX, 1));
}

}  // namespace
}  // namespace rewire::shim
