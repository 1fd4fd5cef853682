#include "bench/lib/report.h"

#include <gtest/gtest.h>

#include <fstream>

namespace rewire::bench {
namespace {

std::string Finished(const Report& report) {
  ::testing::internal::CaptureStdout();
  EXPECT_TRUE(report.Finish().ok());
  return ::testing::internal::GetCapturedStdout();
}

TEST(Report, OneObjectOnStdoutWhereAskedFor) {
  Report report("swap", true);
  EXPECT_EQ(report.text(), stderr);
  report.Set("swaps", 1000);
  report.SetConfig("members", 4);
  ASSERT_TRUE(report.AddSamples("stall", "us", {1, 2, 3}).ok());
  const auto object = nlohmann::json::parse(Finished(report));
  EXPECT_EQ(object["schema"], "rewire-bench-swap");
  EXPECT_EQ(object["version"], kSchemaVersion);
  EXPECT_EQ(object["swaps"], 1000);
  EXPECT_EQ(object["config"]["members"], 4);
  EXPECT_EQ(object["measurements"]["stall"]["median"], 2);
  EXPECT_EQ(object["measurements"]["stall"]["unit"], "us");
  EXPECT_EQ(object["measurements"]["stall"]["samples"].size(), 3u);
}

TEST(Report, NothingOnStdoutOtherwise) {
  const Report report("swap", false);
  EXPECT_EQ(report.text(), stdout);
  EXPECT_EQ(Finished(report), "");
}

TEST(Report, MachineFactsAreThere) {
  const auto facts = MachineFacts();
  for (const char* key : {"cores", "processor", "kernel", "architecture", "compiler", "build_type",
                          "sanitizers", "date"}) {
    EXPECT_TRUE(facts.contains(key)) << key;
  }
  EXPECT_GT(facts["cores"].get<int>(), 0);
  EXPECT_EQ(facts["date"].get<std::string>().size(), 20u);
}

TEST(Report, FilesAreWrittenOrTheReasonIsGiven) {
  const std::string file = ::testing::TempDir() + "/report.json";
  Report report("shim", false);
  report.Set("added_ns_median", 9.5);
  ASSERT_TRUE(report.Finish(file).ok());
  std::ifstream in(file);
  EXPECT_EQ(nlohmann::json::parse(in)["added_ns_median"], 9.5);
  const absl::Status status = report.Finish("/nonexistent/report.json");
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("/nonexistent/report.json"), absl::string_view::npos);
}

TEST(Report, BadSamplesNameTheirKey) {
  Report report("shim", false);
  const absl::Status status = report.AddSamples("added", "ns", {});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("added"), absl::string_view::npos);
}

}  // namespace
}  // namespace rewire::bench
