#include "bench/lib/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/lib/collective_options.h"

namespace rewire::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Parsed {
  int64_t count = 5;
  int64_t size = 64;
  double rate = 0.5;
  std::string mode = "fast";
  bool verbose = false;
  absl::Status status;
};

Parsed Parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  Flags flags("test_perf", "a test");
  flags.Int("-n,--iters", &parsed.count, 1, 100, "how many");
  flags.Size("-b", &parsed.size, 0, int64_t{1} << 40, "how large");
  flags.Real("--rate", &parsed.rate, 0, 1, "how often");
  flags.Text("--mode", &parsed.mode, {"fast", "exact"}, "how");
  flags.Switch("-v,--verbose", &parsed.verbose, "more");
  parsed.status = flags.Parse(arguments);
  return parsed;
}

TEST(Flags, DefaultsAndValues) {
  const Parsed none = Parse({});
  ASSERT_TRUE(none.status.ok());
  EXPECT_EQ(none.count, 5);
  const Parsed all = Parse({"-n", "7", "-b", "32M", "--rate=0.25", "--mode", "exact", "-v"});
  ASSERT_TRUE(all.status.ok()) << all.status;
  EXPECT_EQ(all.count, 7);
  EXPECT_EQ(all.size, 32 << 20);
  EXPECT_EQ(all.rate, 0.25);
  EXPECT_EQ(all.mode, "exact");
  EXPECT_TRUE(all.verbose);
}

TEST(Flags, EveryMistakeIsNamed) {
  struct Case {
    std::vector<std::string> arguments;
    const char* text;
  };
  const Case cases[] = {
      {{"--unknown"}, "unknown argument '--unknown'"},
      {{"stray"}, "unknown argument 'stray'"},
      {{"--unknown=3"}, "unknown argument '--unknown'"},
      {{"-n"}, "-n needs a value"},
      {{"-n", "3", "--iters", "4"}, "--iters is given twice"},
      {{"-n", "3x"}, "-n: '3x' is not a whole number"},
      {{"-n", ""}, "-n: '' is not a whole number"},
      {{"-n", "0"}, "-n: 0 is not in 1..100"},
      {{"-n", "99999999999999999999"}, "is not a whole number"},
      {{"-b", "3T"}, "-b: '3T' is not a size"},
      {{"--rate", "nan"}, "--rate: 'nan' is not a number"},
      {{"--rate", "1.5"}, "--rate: 1.5 is not in 0..1"},
      {{"--mode", "slow"}, "--mode: 'slow' is none of fast, exact"},
      {{"--verbose=1"}, "--verbose takes no value"},
  };
  for (const Case& c : cases) {
    const Parsed parsed = Parse(c.arguments);
    EXPECT_FALSE(parsed.status.ok()) << c.text;
    EXPECT_THAT(std::string(parsed.status.message()), HasSubstr(c.text));
  }
}

TEST(Flags, Sizes) {
  EXPECT_EQ(ParseSize("0").value(), 0);
  EXPECT_EQ(ParseSize("8").value(), 8);
  EXPECT_EQ(ParseSize("2K").value(), 2048);
  EXPECT_EQ(ParseSize("3m").value(), 3 << 20);
  EXPECT_EQ(ParseSize("4G").value(), int64_t{4} << 30);
  for (const char* wrong : {"", "K", "-1", "1KB", " 1", "1.5M", "9223372036854775807K"}) {
    EXPECT_FALSE(ParseSize(wrong).ok()) << wrong;
  }
}

TEST(Flags, UsageNamesEveryFlag) {
  int64_t value = 3;
  Flags flags("test_perf", "a test");
  flags.Int("-n,--iters", &value, 1, 9, "how many");
  EXPECT_THAT(flags.Usage(), HasSubstr("-n, --iters VALUE"));
  EXPECT_THAT(flags.Usage(), HasSubstr("how many (3)"));
}

TEST(FlagsDeathTest, ProgramsEndWithTheReason) {
  const auto run = [](const char* argument) {
    Flags flags("test_perf", "a test");
    std::string program = "test_perf", copy = argument;
    char* argv[] = {program.data(), copy.data()};
    flags.ParseOrExit(2, argv);
  };
  EXPECT_EXIT(run("--bad"), ::testing::ExitedWithCode(2), "test_perf: unknown argument '--bad'");
  EXPECT_EXIT(run("--help"), ::testing::ExitedWithCode(0), "");
}

absl::Status ParseCollective(const std::vector<std::string>& arguments,
                             CollectiveOptions* options) {
  Flags flags("all_reduce_perf", "");
  options->AddTo(&flags);
  const absl::Status parsed = flags.Parse(arguments);
  return parsed.ok() ? options->Check(flags) : parsed;
}

TEST(CollectiveOptions, NcclTestsFlags) {
  CollectiveOptions options;
  ASSERT_TRUE(ParseCollective({"-b", "8", "-e", "1K",     "-f", "4",   "-n", "5",  "-w",    "2",
                               "-c", "0", "-d", "half",   "-o", "max", "-r", "1",  "-z",    "1",
                               "-a", "3", "-J", "x.json", "-T", "9",   "-S", "-M", "--json"},
                              &options)
                  .ok());
  EXPECT_THAT(options.Sizes(2), ElementsAre(8, 32, 128, 512));
  EXPECT_EQ(options.json_file, "x.json");
  EXPECT_EQ(options.timeout_seconds, 9);
  EXPECT_TRUE(options.json && options.memory && options.timestamps);
}

TEST(CollectiveOptions, StepsAndRounding) {
  CollectiveOptions options;
  ASSERT_TRUE(ParseCollective({"-b", "0", "-e", "20", "-i", "7"}, &options).ok());
  EXPECT_THAT(options.Sizes(4), ElementsAre(0, 4, 12));  // 0, 7, 14 in whole elements
  EXPECT_THAT(CollectiveOptions().Sizes(4), ElementsAre(32 << 20));
}

TEST(CollectiveOptions, Contradictions) {
  CollectiveOptions options;
  EXPECT_FALSE(ParseCollective({"-i", "1", "-f", "2"}, &options).ok());
  options = {};
  EXPECT_FALSE(ParseCollective({"-b", "2G"}, &options).ok());
  options = {};
  EXPECT_FALSE(ParseCollective({"-b", "0", "-f", "2"}, &options).ok());
  options = {};
  EXPECT_FALSE(ParseCollective({"-f", "1"}, &options).ok());
  options = {};
  EXPECT_FALSE(ParseCollective({"-d", "complex"}, &options).ok());
}

}  // namespace
}  // namespace rewire::bench
