// Wrong usage of the command: exit status 2, and a reason that begins with "rewire: ".
#include "reconfig/control/cli/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace rewire::control {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Ended {
  int status = 0;
  std::string err;
};

Ended RunLine(std::vector<std::string> arguments) {
  ::testing::internal::CaptureStderr();
  Ended ran;
  ran.status = RunCommandLine(std::move(arguments));
  ran.err = ::testing::internal::GetCapturedStderr();
  return ran;
}

void ExpectUsage(std::vector<std::string> arguments, const std::string& reason) {
  const Ended ran = RunLine(std::move(arguments));
  EXPECT_EQ(ran.status, kExitUsage) << ran.err;
  EXPECT_THAT(ran.err, StartsWith("rewire"));
  EXPECT_THAT(ran.err, HasSubstr(reason));
}

TEST(CommandsTest, NamesTheRangeOfANumber) {
  for (const char* wrong : {"x", "0", "-1", "100001", "1.5", ""}) {
    ExpectUsage({"resize", wrong}, "range 1 to 100000");
  }
  for (const char* command : {"drain", "replace"}) {
    for (const char* wrong : {"x", "4294967296"}) {
      ExpectUsage({command, wrong}, "range 0 to 4294967295");
    }
  }
}

TEST(CommandsTest, AReasonOfTheParserBeginsWithTheProgram) {
  ExpectUsage({"status", "--wrong"}, "rewire: The following argument was not expected: --wrong");
  ExpectUsage({"status", "--wrong"}, "\n`rewire status --help` prints the options.\n");
}

TEST(CommandsTest, WaitsForAnEpochOfOneOrTwoWords) {
  const std::string nowhere = ::testing::TempDir() + "/absent.sock";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"epoch", "4"}, {"epoch 4"}, {"epoch=4"}, {"steady"}}) {
    std::vector<std::string> line = {"wait", "--socket", nowhere, "--for"};
    line.insert(line.end(), words.begin(), words.end());
    const Ended ran = RunLine(std::move(line));
    EXPECT_EQ(ran.status, kExitRefused) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("no agent answers"));
  }
  ExpectUsage({"wait", "--socket", nowhere, "--for", "epoch"}, "must be steady, or epoch N");
  ExpectUsage({"wait", "--socket", nowhere, "--for", "epoch 0"}, "must be steady, or epoch N");
}

TEST(CommandsTest, FindsAJobByItsName) {
  const Ended ran = RunLine({"status", "--dir", "/nowhere", "--job", "train"});
  EXPECT_EQ(ran.status, kExitRefused);
  EXPECT_THAT(ran.err, HasSubstr("/nowhere/train/agent.sock"));
  ExpectUsage({"status", "--job", "train", "--socket", "/nowhere/a.sock"}, "--socket");
}

TEST(CommandsTest, AJobsNameIsAFileName) {
  for (const char* wrong : {"a/b", "..", ".hidden", ""}) {
    ExpectUsage({"run", "--job", wrong, "--", "true"}, "must be a file name");
    ExpectUsage({"status", "--job", wrong}, "must be a file name");
  }
}

TEST(CommandsTest, AFolderWithoutTheSimulationIsWrongUsage) {
  ExpectUsage({"run", "--no-preload", "--sim=/nowhere", "--", "true"},
              "/nowhere/libnccl.so.2: not a readable file");
}

}  // namespace
}  // namespace rewire::control
