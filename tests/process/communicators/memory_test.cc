// Rebuilds of a program that has left no memory for another generation on one of its devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/process/communicators/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

class MemoryTest : public CommunicatorsJob {
 protected:
  MemoryTest() : CommunicatorsJob(MEMORY_PROGRAM) {}
  void Use(int number) {
    Touch("use-" + std::to_string(number));
    Await("used it " + std::to_string(number) + "\n");
  }
  void ExpectRefused() {
    const CommandResult refused = Ask("rebuild");
    EXPECT_NE(refused.status, 0);
    EXPECT_THAT(refused.err,
                HasSubstr("member 2 cannot prepare: build generations of 3 communicators: device "
                          "memory: bytes="));
  }
};

// At first the memory of the next generation is known from the program's own calls, and then from
// builds.
TEST_F(MemoryTest, ARebuildThatDoesNotFitIsRefusedByNameAndAllocatesNothing) {
  Start(3, "", {"SIMGPU_MEMORY_MB=4096"});
  Use(1);
  ExpectRefused();
  Use(2);
  Rebuild(2);
  AwaitPending("", 0);
  Use(3);
  ExpectRefused();
  Use(4);
  Rebuild(3);
  AwaitPending("", 0);
  Finish();
}

}  // namespace
}  // namespace rewire
