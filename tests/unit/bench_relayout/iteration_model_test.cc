#include "bench/moe/iteration_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace rewire::bench {
namespace {

using ::testing::HasSubstr;

const char kIterations[] = REWIRE_MOE_DATA "/iteration_ms.csv";

TEST(IterationModelTest, FindsTheConstantsThatTimesWereMadeFrom) {
  auto cells = ReadIterations(kIterations);
  ASSERT_TRUE(cells.ok()) << cells.status();
  ASSERT_EQ(cells->size(), 96u);
  const IterationModel made{0.004, 0.009, 0.02};
  for (IterationCell& c : *cells) c.seconds = made.Seconds(*WorkOf(c));
  const auto found = FitIterations(*cells);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_NEAR(found->s_per_tflop, made.s_per_tflop, 1e-9);
  EXPECT_NEAR(found->s_per_waited_tflop, made.s_per_waited_tflop, 1e-9);
  EXPECT_NEAR(found->s_per_gb, made.s_per_gb, 1e-9);
}

TEST(IterationModelTest, IsWithinFifteenPercentOfMostIterationsThatItWasNotFittedTo) {
  const auto cells = ReadIterations(kIterations);
  ASSERT_TRUE(cells.ok());
  const auto modelled = ModelIterations(*cells, "wikitext");
  ASSERT_TRUE(modelled.ok());
  EXPECT_LE(modelled->median_error, 0.15);
  EXPECT_LE(modelled->median_error_held_out, 0.15);
  // The fitted constants are plausible.
  EXPECT_GT(modelled->model.s_per_tflop, 1 / 312.0);  // the limit of an A100
  EXPECT_GT(modelled->model.s_per_waited_tflop, 0);
  EXPECT_GT(modelled->model.s_per_gb, 1 / 300.0);
}

TEST(IterationModelTest, OneMethodAloneDoesNotDetermineTheConstants) {
  std::vector<IterationCell> cells(3, {"C4", "LAER", "mixtral-8x7b-e8k2", "0.0", 27});
  EXPECT_THAT(FitIterations(cells).status().ToString(), HasSubstr("3 cells do not determine"));
  cells[0].model = "gpt-2";
  EXPECT_THAT(FitIterations(cells).status().ToString(), HasSubstr("no model 'gpt-2'"));
  cells[0] = {"C4", "DeepSpeed", "mixtral-8x7b-e8k2", "0.0", 27};
  EXPECT_THAT(FitIterations(cells).status().ToString(), HasSubstr("no method 'DeepSpeed'"));
}

TEST(IterationModelTest, AFileThatIsNotWhatItShouldBeIsNamed) {
  EXPECT_THAT(ReadIterations("/nowhere.csv").status().ToString(), HasSubstr("/nowhere.csv"));
  const std::string path = ::testing::TempDir() + "/iterations.csv";
  std::ofstream(path) << "# a comment\nmodel_name,avg_time_ms\nx,12\ny\n";
  EXPECT_THAT(ReadIterations(path).status().ToString(), HasSubstr(":4: 1 fields"));
  std::ofstream(path) << "model_name,avg_time_ms\nx,soon\n";
  EXPECT_THAT(ReadIterations(path).status().ToString(), HasSubstr("avg_time_ms is 'soon'"));
}

}  // namespace
}  // namespace rewire::bench
