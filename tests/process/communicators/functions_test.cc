// Rebuilds of programs that use the rarer functions of NCCL.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/communicators/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

class FunctionsTest : public CommunicatorsJob {
 protected:
  FunctionsTest() : CommunicatorsJob(FUNCTIONS_PROGRAM) {}
  // Returns whether NCCL's own host code is used, from a folder with this text in its path.
  static bool HostIs(const std::string& text) {
    const char* host = std::getenv("NCCL_HOST_LIBRARIES");
    return host != nullptr && std::string(host).find(text) != std::string::npos;
  }
  void Use(int number) {
    Touch("use-" + std::to_string(number));
    Await("used it " + std::to_string(number) + "\n");
  }
};

TEST_F(FunctionsTest, EveryCollectiveAndGroupGoesOnThroughRebuilds) {
  Start(3, "collectives");
  for (int epoch = 2; epoch <= 7; ++epoch) Rebuild(epoch);
  Finish();
}

TEST_F(FunctionsTest, SharedAndScalableCommunicatorsAreRebuilt) {
  Start(3, "origins");
  for (int epoch = 2; epoch <= 5; ++epoch) Rebuild(epoch);
  AwaitPending("", 0);
  Finish();
}

// All but 8 of the 200 splits are idle.
TEST_F(FunctionsTest, HundredsOfCommunicatorsAreRebuilt) {
  Start(2, "many", {"NCCL_BUFFSIZE=65536", "SIMGPU_MEMORY_MB=32768"});
  for (int epoch = 2; epoch <= 4; ++epoch) Rebuild(epoch);
  AwaitPending("idle", 2 * 192);
  Finish();
}

TEST_F(FunctionsTest, ASuspendedCommunicatorIsPinnedUntilItIsResumed) {
  if (HostIs("/2.28.")) GTEST_SKIP() << "ncclCommSuspend came with NCCL 2.29.7";
  Start(2, "suspended", {"SIMNCCL_VERSION=23007"});
  Rebuild(2);
  Use(1);
  AwaitPinned(2);
  const CommandResult refused = Ask("rebuild");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("suspended"));
  Use(2);
  AwaitPinned(0);
  Rebuild(3);
  Finish();
}

// NCCL ends the operations of such a parent, which can only be aborted afterwards.
TEST_F(FunctionsTest, AParentIsLeftAloneAfterAShrinkThatAborts) {
  Start(3, "shrunk");
  Rebuild(2);
  // The first operation on a generation that is not connected yet needs all ranks.
  AwaitPending("", 0);
  Use(1);
  for (int epoch = 3; epoch <= 5; ++epoch) Rebuild(epoch);
  Finish();
}

TEST_F(FunctionsTest, ARevokedCommunicatorIsLeftAlone) {
  Start(2, "revoked");
  Rebuild(2);
  Use(1);
  for (int epoch = 3; epoch <= 5; ++epoch) Rebuild(epoch);
  Finish();
}

TEST_F(FunctionsTest, AGrownCommunicatorIsPinned) {
  if (!HostIs("/2.3")) GTEST_SKIP() << "needs NCCL's own host code, 2.30.4 or later";
  Start(3, "grown");
  Rebuild(2);
  Use(1);
  AwaitPinned(3);
  const CommandResult refused = Ask("rebuild");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("ncclCommGrow"));
  Use(2);
  AwaitPinned(0);
  Rebuild(3);
  Finish();
}

TEST_F(FunctionsTest, AWatchdogAbortsCommunicatorsDuringRebuilds) {
  Start(3, "watched");
  Rebuild(2);
  for (int k = 1; k <= 8; ++k) {
    Background rebuild({REWIRE_COMMAND, "rebuild", "--socket", Socket()});
    Use(k);
    const CommandResult done = rebuild.End(seconds(120));
    EXPECT_EQ(done.status, 0) << done.out << done.err;
  }
  Finish();
}

}  // namespace
}  // namespace rewire
