// Simultaneous deaths in a job whose whole state is on every member: any survivor is sufficient.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

#include "tests/process/job/training_job.h"

namespace rewire {
namespace {

using ::testing::SizeIs;

class ReplicaTest : public ::testing::TestWithParam<std::vector<size_t>> {};

TEST_P(ReplicaTest, TheSurvivorsGoOnWithTheSameLosses) {
  TrainingJob job({.members = 4, .max = 4, .zero = 0});
  job.Train();
  std::vector<pid_t> victims;
  for (const size_t slot : GetParam()) victims.push_back(job.PidOfSlot(slot));
  for (const pid_t victim : victims) kill(victim, SIGKILL);
  for (const pid_t victim : victims) ASSERT_TRUE(Eventually([&] { return Ended(victim); }));
  ASSERT_TRUE(Eventually([&] { return job.World().size() == 4 - victims.size(); }));
  job.WaitSteady();
  job.Train();
  // The world grows back.
  EXPECT_EQ(job.Ask("resize", {"4"}).status, 0);
  job.Train();
  EXPECT_THAT(job.World(), SizeIs(4));
  job.FinishExact();
}

INSTANTIATE_TEST_SUITE_P(Slots, ReplicaTest,
                         ::testing::Values(std::vector<size_t>{1, 2}, std::vector<size_t>{1, 3},
                                           std::vector<size_t>{3, 0},
                                           std::vector<size_t>{0, 1, 2}));

}  // namespace
}  // namespace rewire
