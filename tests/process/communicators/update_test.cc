// Losses of a cooperating program whose update function begins with a collective operation.
#include <gtest/gtest.h>

#include "tests/process/communicators/job.h"

namespace rewire {
namespace {

class UpdateTest : public CommunicatorsJob {
 protected:
  UpdateTest() : CommunicatorsJob(UPDATE_PROGRAM) {}
  void AwaitMembers(size_t count) {
    const Time until = Now() + seconds(60);
    while (Status()["world"]["members"].size() != count && Now() < until) {
    }
    ASSERT_EQ(Status()["world"]["members"].size(), count) << job_->End(seconds(1)).err;
  }
};

// Nothing has a copy of the state, so the job goes on only if Rewire knows that the survivors'
// state is whole.
TEST_F(UpdateTest, AnUpdateThatChangedNothingNeedsNoCopy) {
  Start(4, "");
  for (ranks_ = 3; ranks_ > 1; --ranks_) {
    Touch("die");
    AwaitMembers(ranks_);
  }
  Rebuild(4);
  ranks_ = 2;
  Finish();
}

}  // namespace
}  // namespace rewire
