#include "bench/lib/command_line.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

namespace rewire::bench {
namespace {

// Parses the arguments, prints the value to stderr and exits with 3.
void CountWith(std::vector<std::string> arguments) {
  int64_t count = 5;
  CLI::App app("counts", "test_perf");
  app.add_option("-n,--count", count, "how many")->check(CLI::Range(1, 10));
  arguments.insert(arguments.begin(), "test_perf");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ParseOrExit(&app, static_cast<int>(argv.size()), argv.data());
  fprintf(stderr, "count %d\n", static_cast<int>(count));
  exit(3);
}

TEST(CommandLineDeathTest, ProgramsEndWithTheReason) {
  const auto exits = [](int status) { return ::testing::ExitedWithCode(status); };
  EXPECT_EXIT(CountWith({}), exits(3), "count 5");
  EXPECT_EXIT(CountWith({"--count=7"}), exits(3), "count 7");
  EXPECT_EXIT(CountWith({"--count", "11"}), exits(2), "--count: Value 11 not in range 1 to 10");
  EXPECT_EXIT(CountWith({"--count", "x"}), exits(2), "--count");
  EXPECT_EXIT(CountWith({"-n", "1", "-n", "2"}), exits(2), "--count");
  EXPECT_EXIT(CountWith({"--bad"}), exits(2), "--bad");
}

TEST(CommandLineDeathTest, HelpShowsDefaults) {
  // The help is on stdout, which a death test does not see.
  EXPECT_EXIT((dup2(2, 1), CountWith({"--help"})), ::testing::ExitedWithCode(0), "--count INT.*=5");
}

}  // namespace
}  // namespace rewire::bench
