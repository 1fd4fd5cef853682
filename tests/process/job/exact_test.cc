// Every change of the world in one run, and not a bit of difference to a run without any.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/job/training_job.h"

namespace rewire {
namespace {

using ::testing::SizeIs;

class EveryChange : public ::testing::TestWithParam<int> {};

TEST_P(EveryChange, IsBitEqualToNone) {
  TrainingOptions options;
  options.zero = GetParam();
  TrainingJob job(options);
  CommandResult r = job.Ask("resize", {"4"});
  EXPECT_EQ(r.status, 0) << r.err;
  job.Train();
  kill(job.PidOfSlot(3), SIGTERM);
  job.WaitSteady(3);
  EXPECT_THAT(job.World(), SizeIs(3));
  job.Train();
  r = job.Ask("replace", {std::to_string(job.World().at(1))});
  EXPECT_EQ(r.status, 0) << r.err;
  job.Train();
  kill(job.PidOfSlot(0), SIGKILL);
  job.WaitSteady(5);
  EXPECT_THAT(job.World(), SizeIs(2));
  job.Train();
  r = job.Ask("resize", {"4"});
  EXPECT_EQ(r.status, 0) << r.err;
  job.Train();
  const nlohmann::json status = job.Status();
  EXPECT_EQ(status["epoch"], 6);
  for (const auto& t : status["transitions"]) EXPECT_EQ(t["result"], "committed") << t;
  job.FinishExact();
}

INSTANTIATE_TEST_SUITE_P(Zero, EveryChange, ::testing::Values(0, 1));

}  // namespace
}  // namespace rewire
