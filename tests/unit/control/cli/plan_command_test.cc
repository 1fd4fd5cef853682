#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reconfig/control/cli/commands.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire::control {
namespace {

using ::testing::HasSubstr;
using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

class PlanCommandTest : public ::testing::Test {
 protected:
  std::string File(const std::string& name, const std::string& parallel,
                   const std::string& more = "") {
    const std::string path = folder_ / name;
    std::ofstream(path) << "{\"parallel\": {" << parallel << "}, \"slots_per_node\": 2" << more
                        << ", \"tensors\": [{\"name\": \"w\", \"shape\": [8, 100], "
                           "\"element_bytes\": 2, \"split\": {\"dim\": 0}}]}";
    return path;
  }
  int Run(std::vector<std::string> options) {
    options.insert(options.begin(), "plan");
    CaptureStdout();
    CaptureStderr();
    const int status = RunCommandLine(options);
    out_ = GetCapturedStdout();
    err_ = GetCapturedStderr();
    return status;
  }

  const TemporaryFolder folder_;
  std::string out_;
  std::string err_;
};

// Four members on two nodes with half of the tensor each go to four tensor-parallel ones. In the
// order of slots members 1 and 2 would need a piece that they do not have.
TEST_F(PlanCommandTest, PrintsTheBytesOfEachMemberAndLink) {
  const std::string from = File("from.json", "\"tensor\": 2, \"data\": 2");
  const std::string to = File("to.json", "\"tensor\": 4", ", \"members\": [0, 1, 2, 3]");
  ASSERT_EQ(Run({"--from", from, "--to", to, "--json"}), kExitOk) << err_;
  const auto json = nlohmann::json::parse(out_);
  // Members 0 and 3 have what they need; 1 gets rows 2-3 from 0, and 2 gets rows 4-5 from 3.
  EXPECT_EQ(json["bytes_that_stay"], 800);
  EXPECT_EQ(json["bytes_inside_nodes"], 800);
  EXPECT_EQ(json["bytes_between_nodes"], 0);
  EXPECT_EQ(json["peak_bytes_of_a_member"], 1200);
  EXPECT_EQ(json["members"][1]["receives"], 400);
  ASSERT_EQ(Run({"--from", from, "--to", to}), kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("4 slots"));
  EXPECT_THAT(out_, HasSubstr("moves inside nodes  800 B"));
  EXPECT_THAT(out_, HasSubstr("       1      0        1"));
}

TEST_F(PlanCommandTest, MembersGetTheSlotsInWhichMostBytesStay) {
  const std::string from = File("from.json", "\"tensor\": 2, \"data\": 2");
  const std::string to = File("to.json", "\"tensor\": 4");
  ASSERT_EQ(Run({"--from", from, "--to", to, "--json"}), kExitOk) << err_;
  auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["bytes_that_stay"], 1600);
  EXPECT_EQ(json["members"][2]["slot"], 1);
  ASSERT_EQ(Run({"--from", from, "--to", File("one.json", "\"tensor\": 1")}), kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("       3      1   leaves"));
}

// Members 0 and 1 are on node 0. Each of the four has one copy of two halves, then of quarters.
TEST_F(PlanCommandTest, SaysWhatExistsOnceAndHowLongItTakes) {
  const std::string from = File("from.json", "\"tensor\": 2, \"data\": 2");
  const std::string to = File("to.json", "\"tensor\": 4", ", \"members\": [2, 1, 0, 3]");
  ASSERT_EQ(Run({"--from", from, "--to", to, "--json", "--member-gbps", "1e-6"}), kExitOk) << err_;
  auto json = nlohmann::json::parse(out_);
  EXPECT_EQ(json["bytes_that_exist_once"]["before"], 0);
  EXPECT_EQ(json["bytes_that_exist_once"]["after"], 1600);
  // Members 1 and 0 exchange 400 bytes over links of 125 bytes a second.
  EXPECT_EQ(json["bytes_inside_nodes"], 800);
  EXPECT_DOUBLE_EQ(json["seconds_at_least"].get<double>(), 3.2);
  ASSERT_EQ(Run({"--from", File("two.json", "\"tensor\": 2"), "--to", to, "--node-gbps", "8e-6"}),
            kExitOk)
      << err_;
  // Each node lacks half of what it needs, or all of it.
  EXPECT_THAT(out_, HasSubstr("takes at least"));
  EXPECT_THAT(out_, HasSubstr("exists once         1.60 kB before, 1.60 kB after"));
}

TEST_F(PlanCommandTest, DrawsThePicture) {
  const std::string from = File("from.json", "\"data\": 2");
  const std::string to = File("to.json", "\"tensor\": 2, \"data\": 2");
  const std::string plot = folder_ / "plot.svg";
  ASSERT_EQ(Run({"--from", from, "--to", to, "--plot", plot}), kExitOk) << err_;
  EXPECT_THAT(out_, HasSubstr("busiest of 1 links between nodes\n       0 to 1: "));
  std::stringstream svg;
  svg << std::ifstream(plot).rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr("<svg "));
  EXPECT_THAT(svg.str(), HasSubstr("0 to 2: 800 B"));
}

TEST_F(PlanCommandTest, ErrorsNameTheFileAndTheField) {
  const std::string good = File("good.json", "\"data\": 2");
  const auto refused = [&](const std::vector<std::string>& options, const std::string& text) {
    EXPECT_EQ(Run(options), kExitRefused);
    EXPECT_THAT(err_, HasSubstr(text));
  };
  refused({"--from", folder_ / "none.json", "--to", good}, "none.json: No such file");
  refused({"--from", good, "--to", File("bad.json", "\"data\": 0")},
          "bad.json:1:14: parallel: data=0: must be in [1, ");
  refused({"--from", good, "--to", File("twice.json", "\"data\": 2", ", \"members\": [7, 7]")},
          "plan: to: member 7 has two slots");
  refused({"--from", folder_ / "", "--to", good}, "read the layout: file=");
  refused({"--from", good, "--to", good, "--plot", folder_ / "none/plot.svg"}, "write the plot");
  EXPECT_EQ(Run({"--from", good}), kExitUsage);
}

}  // namespace
}  // namespace rewire::control
