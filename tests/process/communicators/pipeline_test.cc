// Changes of a cooperating program with a communicator that carries sends and receives alone.
#include <gtest/gtest.h>

#include "tests/process/communicators/job.h"

namespace rewire {
namespace {

class PipelineTest : public CommunicatorsJob {
 protected:
  PipelineTest() : CommunicatorsJob(PIPELINE_PROGRAM) {}
  void Resize(int members) {
    const CommandResult r = Ask("resize", {std::to_string(members)});
    ASSERT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_EQ(Status()["world"]["members"].size(), static_cast<size_t>(members));
  }
};

// An unmodified program has no such boundary: CommunicatorsTest shows its swap as pending.
TEST_F(PipelineTest, SendsAndReceivesSwitchAtTheUpdateBoundary) {
  Start(3, "", {}, {"--max", "4"});
  for (int epoch = 2; epoch <= 4; ++epoch) {
    Rebuild(epoch);
    AwaitPending("", 0);
  }
  Resize(4);
  Rebuild(6);
  Resize(2);
  Rebuild(8);
  AwaitPending("", 0);
  // A member that has joined finalizes its communicators at the end.
  Resize(3);
  ranks_ = 5;
  Finish();
}

}  // namespace
}  // namespace rewire
