// `rewire moe`: from text to a recording, and from a recording to plans.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "reconfig/control/cli/commands.h"

namespace rewire::control {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ran {
  int status = 0;
  std::string out, err;
};

class MoeCommandsTest : public ::testing::Test {
 protected:
  MoeCommandsTest()
      : directory_(::testing::TempDir() + "/moe_commands_test." + std::to_string(getpid())) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
    // Two layers on two nodes of two devices; all tokens of a node go to its first device.
    std::ofstream text(directory_ + "/counts.csv");
    text << "micro_batch,layer,source,expert,tokens\n";
    for (int batch = 0; batch < 3; ++batch) {
      for (int layer = 0; layer < 2; ++layer) {
        for (int source = 0; source < 4; ++source) {
          const int expert = source / 2 * 4;
          text << batch << "," << layer << "," << source << "," << expert << ",100\n"
               << batch << "," << layer << "," << source << "," << expert + 1 << ",100\n";
        }
      }
    }
  }
  ~MoeCommandsTest() override { std::filesystem::remove_all(directory_); }

  static Ran Run(std::vector<std::string> arguments) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    arguments.insert(arguments.begin(), "moe");
    Ran ran;
    ran.status = RunCommandLine(std::move(arguments));
    std::cout.flush();
    ran.out = ::testing::internal::GetCapturedStdout();
    ran.err = ::testing::internal::GetCapturedStderr();
    return ran;
  }
  Ran Record() {
    return Run({"record", At("counts.csv"), At("counts"), "--nodes", "2", "--experts", "8"});
  }
  [[nodiscard]] std::string At(const std::string& name) const { return directory_ + "/" + name; }

  const std::string directory_;
};

TEST_F(MoeCommandsTest, ReplaysRecordingMadeFromText) {
  const Ran record = Record();
  EXPECT_EQ(record.status, kExitOk) << record.err;
  EXPECT_EQ(record.out, At("counts") + ": nodes=2 devices per node=2 experts=8, 6 records\n");
  const Ran text = Run({"replay", At("counts"), "--plan", "greedy"});
  EXPECT_EQ(text.status, kExitOk) << text.err;
  EXPECT_THAT(text.out, HasSubstr("experts=8; plan greedy\n"));
  EXPECT_THAT(text.out, HasSubstr("\n     1              3                200         0"
                                  "             2.000   1.000     2.0\n"));
  EXPECT_THAT(text.out, HasSubstr("\n   all              6                200         0"));
}

TEST_F(MoeCommandsTest, JsonHasEachLayerAndTotal) {
  Record();
  for (const char* plan : {"none", "greedy", "split", "balance", "laer", "relayout", "composed"}) {
    const Ran ran = Run({"replay", At("counts"), "--plan", plan, "--json"});
    EXPECT_EQ(ran.status, kExitOk) << ran.err;
    const auto json = nlohmann::json::parse(ran.out);
    EXPECT_EQ(json["plan"], plan);
    ASSERT_EQ(json["layers"].size(), 2U);
    EXPECT_EQ(json["layers"][1]["layer"], 1);
    EXPECT_EQ(json["layers"][1]["micro_batches"], 3);
    EXPECT_EQ(json["all"]["max_over_mean_before"], 2.0);
    EXPECT_EQ(json["all"]["straggler_before"], 200.0);
    const auto after = json["all"]["straggler_after"].get<double>();
    EXPECT_TRUE(std::string(plan) == "none" ? after == 200 : after < 200) << plan << after;
  }
}

TEST_F(MoeCommandsTest, PlotHasTwoBarsForEachDevice) {
  Record();
  const Ran ran = Run({"replay", At("counts"), "--plot", At("a&b.svg")});
  EXPECT_EQ(ran.status, kExitOk) << ran.err;
  std::ifstream file(At("a&b.svg"));
  const std::string svg{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(svg, StartsWith("<svg xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  size_t bars = 0;
  for (size_t at = 0; (at = svg.find("<rect x=", at)) != std::string::npos; ++at) ++bars;
  EXPECT_EQ(bars, 2U * 4);
  const Ran nowhere = Run({"replay", At("counts"), "--plot", At("no/plot.svg")});
  EXPECT_EQ(nowhere.status, kExitRefused);
  EXPECT_THAT(nowhere.err, HasSubstr(At("no/plot.svg") + ": No such file or directory"));
}

TEST_F(MoeCommandsTest, ReplaysRecordsBeforeDamage) {
  Record();
  const auto size = std::filesystem::file_size(At("counts"));
  std::filesystem::resize_file(At("counts"), size - 1);
  const Ran ran = Run({"replay", At("counts"), "--json"});
  EXPECT_EQ(ran.status, kExitRefused);
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["ok"], false);
  EXPECT_EQ(json["all"]["micro_batches"], 5);
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr(": byte 772: the file ends after 147"));
  EXPECT_THAT(ran.err, HasSubstr(At("counts") + ": byte 772: "));
}

TEST_F(MoeCommandsTest, ErrorsNameTheFault) {
  Record();
  EXPECT_THAT(Record().err, HasSubstr(At("counts") + ": create: File exists"));
  EXPECT_THAT(Run({"record", At("nothing"), At("x")}).err, HasSubstr("nothing: No such file"));
  EXPECT_THAT(Run({"record", At("counts"), At("x")}).err, HasSubstr("counts:1: "));
  EXPECT_FALSE(std::filesystem::exists(At("x")));
  EXPECT_THAT(Run({"replay", At("counts.csv")}).err,
              HasSubstr("counts.csv: byte 0: not a recording of this version"));
  EXPECT_THAT(Run({"replay", At("counts"), "--capacity", "1"}).err,
              HasSubstr("capacity=1: slots of 4 devices=4: must be at least 8"));
  EXPECT_EQ(Run({"replay", At("counts"), "--plan", "best"}).status, kExitUsage);
  EXPECT_EQ(Run({"replay"}).status, kExitUsage);
  EXPECT_EQ(Run({}).status, kExitUsage);
}

}  // namespace
}  // namespace rewire::control
