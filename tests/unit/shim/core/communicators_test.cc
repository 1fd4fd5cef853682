// The communicators of one process as the participant sees them.
#include <algorithm>

#include "tests/unit/shim/core/stage.h"

namespace rewire::shim {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using CommunicatorsTest = Stage;

TEST_F(CommunicatorsTest, AGraphPinsUntilItIsReleased) {
  Program captured(core_.get(), 1);
  Program addressed(core_.get(), 2);
  ASSERT_EQ(captured.Create(2, 0), ncclSuccess);
  ASSERT_EQ(addressed.Create(2, 0), ncclSuccess);
  for (const Pin pin : {Pin::kGraph, Pin::kWindowPointer}) {
    EXPECT_TRUE(AddPin(&addressed.comm, pin));
    EXPECT_FALSE(AddPin(&addressed.comm, pin));
  }
  AddPin(&captured.comm, Pin::kGraph);
  core_->OnPinned(&captured.comm);
  core_->ReleaseGraphs();
  core_->ReleaseGraphs();  // nothing is left to report
  {
    MutexLock lock(&events_.mutex);
    ASSERT_EQ(events_.pinned.size(), 3u);
    EXPECT_THAT(events_.pinned[0], HasSubstr("CUDA graph"));
    EXPECT_EQ(std::count(events_.pinned.begin(), events_.pinned.end(), ""), 1);
  }
  EXPECT_TRUE(captured.comm.watch_capture.load());
  EXPECT_TRUE(Prepare(1, {BuildOf(captured, 2, 0)}).ok());
  const std::string refused = Prepare(2, {BuildOf(addressed, 2, 0)}).ToString();
  EXPECT_THAT(refused, HasSubstr("addresses of its windows"));
  EXPECT_THAT(refused, Not(HasSubstr("CUDA graph")));
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
