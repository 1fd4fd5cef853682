// The communicators of one process as the participant sees them.
#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

using CommunicatorsTest = Stage;

TEST_F(CommunicatorsTest, SeveralRanksOfOneCommunicatorInThisProcessAreReported) {
  Program first(core_.get(), 1);
  Program second(core_.get(), 1);
  ASSERT_EQ(first.Create(2, 0), ncclSuccess);
  ASSERT_EQ(second.Create(2, 1), ncclSuccess);
  {
    MutexLock lock(&events_.mutex);
    ASSERT_EQ(events_.created.size(), 2u);
    EXPECT_TRUE(events_.created[1].pinned);
    EXPECT_THAT(events_.created[1].reason, HasSubstr("several ranks of the communicator"));
  }
  first.Close();
  {
    MutexLock lock(&events_.mutex);
    EXPECT_THAT(events_.destroyed, IsEmpty());
  }
  second.Close();
  MutexLock lock(&events_.mutex);
  EXPECT_EQ(events_.destroyed.size(), 1u);
}

// The participant hears of a passed cut from the task queue, not from the application's thread.
TEST_F(CommunicatorsTest, ReportsPassedCutsInTheBackground) {
  Program program(core_.get(), 1);
  ASSERT_EQ(program.Create(2, 0), ncclSuccess);
  Swap(program, 1, 0, 0);
  const int before = events_.moved.load();
  ASSERT_EQ(program.Issue(0), ncclSuccess);
  EXPECT_TRUE(Eventually([&] { return events_.moved.load() > before; }));
  EXPECT_EQ(PositionOf(program).in_use, 1u);
}

}  // namespace
}  // namespace rewire::shim
