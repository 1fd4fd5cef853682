// Log lines: their form, their level, and the limit of a statement.
#include "reconfig/base/log.h"

#include <gmock/gmock.h>

#include <chrono>
#include <ctime>
#include <string>
#include <vector>

namespace rewire {
namespace {

std::string* last_line = nullptr;

TEST(Log, WritesAtOrBelowTheLevelAndCutsLongLines) {
  std::string line;
  last_line = &line;
  SetLogSink([](LogLevel, const std::string& text) { *last_line = text; });
  REWIRE_WARN("rail %d is down", 3);
  EXPECT_NE(line.find("REWIRE WARN rail 3 is down"), std::string::npos) << line;
  line.clear();
  REWIRE_DEBUG("not at the default level");
  EXPECT_EQ(line, "");
  REWIRE_ERROR("%s", std::string(5000, 'x').c_str());
  EXPECT_LT(line.size(), 2048u);
  EXPECT_NE(line.find("xxxx"), std::string::npos);
  SetLogSink(nullptr);
}

// std::time() may be behind the clock of the lines by a tick.
std::time_t ThisSecond() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

TEST(Log, LinesCarryTimeAndEpoch) {
  std::string line;
  last_line = &line;
  SetLogSink([](LogLevel, const std::string& text) { *last_line = text; });
  SetLogEpoch(12);
  const std::time_t before = ThisSecond();
  REWIRE_WARN("a rail is down");
  SetLogEpoch(0);
  SetLogSink(nullptr);
  EXPECT_THAT(line, testing::HasSubstr(" [epoch 12] REWIRE WARN a rail is down"));
  std::tm time{};
  const char* const rest = strptime(line.c_str(), "%Y-%m-%dT%H:%M:%S.", &time);
  ASSERT_NE(rest, nullptr) << line;
  EXPECT_GE(timegm(&time), before);
  EXPECT_LE(timegm(&time), ThisSecond());
  EXPECT_THAT(rest, testing::MatchesRegex("[0-9][0-9][0-9]Z .*"));
}

std::vector<std::string>* all_lines = nullptr;

TEST(Log, AStatementIsLimited) {
  std::vector<std::string> lines;
  all_lines = &lines;
  SetLogSink([](LogLevel, const std::string& text) { all_lines->push_back(text); });
  for (int i = 0; i < 1000; ++i) REWIRE_WARN("link %d is refused", i);
  REWIRE_WARN("another statement");
  SetLogSink(nullptr);
  ASSERT_EQ(lines.size(), LogRate::kMostLines + 1);
  EXPECT_THAT(lines.back(), testing::HasSubstr("another statement"));
}

TEST(LogRateTest, SaysHowManyLinesWereLeftOut) {
  LogRate rate;
  const Time begin = Time{} + seconds(1000);
  for (uint32_t i = 0; i < LogRate::kMostLines; ++i) EXPECT_EQ(rate.Take(begin), 0u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(rate.Take(begin + seconds(1)), std::nullopt);
  EXPECT_EQ(rate.Take(begin + LogRate::kWindow - milliseconds(1)), std::nullopt);
  EXPECT_EQ(rate.Take(begin + LogRate::kWindow), 8u);
  EXPECT_EQ(rate.Take(begin + LogRate::kWindow), 0u);
}

}  // namespace
}  // namespace rewire
