// Every change of the world in one run, whose result is bit-equal to a run without changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "tests/process/job/training_job.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class EveryChange : public ::testing::TestWithParam<TrainingOptions> {};

TEST_P(EveryChange, IsBitEqualToNone) {
  TrainingJob job(GetParam());
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
  if (GetParam().net_plugin) {
    for (const int member : job.World()) {  // with the members' next heartbeats
      const std::string made =
          "rewire_net_links_made_total{member=\"" + std::to_string(member) + "\"} ";
      EXPECT_TRUE(Eventually([&] {
        const std::string metrics = job.Ask("metrics").out;
        const size_t at = metrics.find(made);
        return at != std::string::npos && metrics[at + made.size()] != '0';
      })) << member;
    }
  }
  const CommandResult end = job.FinishExact();
  if (GetParam().net_plugin) {
    EXPECT_THAT(end.err, HasSubstr("NET/rewire: net ABI v"));
  }
}

// No member of the new world was in the old world.
TEST(ReplaceTest, TheOnlyMemberIsReplaced) {
  TrainingJob job({.members = 1, .max = 2});
  const CommandResult r = job.Ask("replace", {"0", "--timeout", "20s"});
  EXPECT_EQ(r.status, 0) << r.err;
  EXPECT_THAT(job.World(), ::testing::ElementsAre(1));
  job.Train();
  job.FinishExact();
}

INSTANTIATE_TEST_SUITE_P(Zero0, EveryChange, ::testing::Values(TrainingOptions{.zero = 0}));
INSTANTIATE_TEST_SUITE_P(Zero1, EveryChange, ::testing::Values(TrainingOptions{}));
INSTANTIATE_TEST_SUITE_P(OverTheNetPlugin, EveryChange,
                         ::testing::Values(TrainingOptions{.net_plugin = true}));

}  // namespace
}  // namespace rewire
