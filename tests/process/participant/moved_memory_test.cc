// A member whose registered device memory was allocated anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/process/agent/job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

TEST(MovedMemoryTest, RefusesAChangeByNameAndTheJobGoesOn) {
  const TemporaryFolder folder;
  const std::string socket = folder / "agent.sock";
  Background job(
      {REWIRE_COMMAND, "run", "-n", "2", "--max", "3", "--no-preload", "--dir", folder / "run",
       "--socket", socket, "--", STATE_MEMBER, folder / "barrier", folder / "stop"},
      {"STATE_MEMBER_MOVES=1", "REWIRE_CUDA_LIBRARY=" SIMGPU_CUDA});
  ASSERT_TRUE(job.ReadUntil(
      [](const CommandResult& r) { return r.out.find("moved\n") != std::string::npos; },
      seconds(40)));
  const CommandResult resize = Rewire({"resize", "3", "--socket", socket}, seconds(40));
  EXPECT_NE(resize.status, 0);
  EXPECT_THAT(resize.err, HasSubstr("tensor table: the registered memory at 0x"));
  EXPECT_THAT(resize.err, HasSubstr("was freed or allocated again"));
  std::ofstream(folder / "stop") << "now";
  const CommandResult end = job.End(seconds(30));
  EXPECT_EQ(end.status, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("[member 0] done step"));
  EXPECT_THAT(end.out, HasSubstr("[member 1] done step"));
}

}  // namespace
}  // namespace rewire
