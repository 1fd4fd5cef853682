#include "reconfig/base/settings.h"

#include <gtest/gtest.h>

namespace rewire {
namespace {

TEST(Settings, AbsentMeansDefault) {
  const Settings s({"PATH=/bin"});
  EXPECT_EQ(s.silence_ms(), 3000);
  EXPECT_EQ(s.log(), "warn");
  EXPECT_EQ(s.Error(), "");
  EXPECT_EQ(s.Unknown(), "");
}

TEST(Settings, TakesValuesWithinRange) {
  const Settings s({"REWIRE_SILENCE_MS=50", "REWIRE_HEARTBEAT_MS=10", "REWIRE_LOG=debug",
                    "REWIRE_SOCKET=/run/x=y"});
  EXPECT_EQ(s.silence_ms(), 50);
  EXPECT_EQ(s.log(), "debug");
  EXPECT_EQ(s.socket(), "/run/x=y");
  EXPECT_EQ(s.Error(), "");
}

TEST(Settings, AnErrorNamesVariableValueAndRange) {
  for (const char* bad : {"49", "600001", "", "12x", "1e3", "99999999999999999999"}) {
    const Settings s({std::string("REWIRE_SILENCE_MS=") + bad});
    EXPECT_EQ(s.Error(), std::string("REWIRE_SILENCE_MS=") + bad +
                             ": must be a whole number from 50 to 600000\n");
    EXPECT_EQ(s.silence_ms(), 3000) << "a wrong value must leave the default";
  }
}

TEST(Settings, RejectsSilenceNotAboveHeartbeat) {
  EXPECT_EQ(
      Settings({"REWIRE_SILENCE_MS=200"}).Error(),
      "REWIRE_SILENCE_MS=200: must be above REWIRE_HEARTBEAT_MS=500 (a member would count as lost "
      "between two heartbeats)\n");
  const Settings close({"REWIRE_SILENCE_MS=200", "REWIRE_HEARTBEAT_MS=100"});
  EXPECT_EQ(close.Error(), "");
  // The interval is limited to a quarter of the silence, so that one late heartbeat is no silence.
  EXPECT_EQ(close.heartbeat_ms(), 50);
  EXPECT_EQ(Settings({"REWIRE_SILENCE_MS=1000"}).heartbeat_ms(), 250);
}

TEST(Settings, AnErrorNamesThePermittedWords) {
  for (const char* bad : {"loud", "", "warn|info", "warnx"}) {
    const Settings s({std::string("REWIRE_LOG=") + bad});
    EXPECT_EQ(s.Error(),
              std::string("REWIRE_LOG=") + bad + ": must be one of off|error|warn|info|debug\n");
  }
}

TEST(Settings, EveryWrongVariableIsNamed) {
  const Settings s({"REWIRE_DISABLE=2", "REWIRE_LOG=loud"});
  EXPECT_NE(s.Error().find("REWIRE_DISABLE=2"), std::string::npos);
  EXPECT_NE(s.Error().find("REWIRE_LOG=loud"), std::string::npos);
}

TEST(Settings, UnknownVariableGetsTheNearestName) {
  const Settings s({"REWIRE_SILENT_MS=100"});
  EXPECT_EQ(s.Error(), "");
  EXPECT_EQ(s.Unknown(), "REWIRE_SILENT_MS: unknown setting; did you mean REWIRE_SILENCE_MS?\n");
}

TEST(Settings, TableHasEveryRowOnce) {
  const auto rows = Settings::Table();
  EXPECT_GT(rows.size(), 10u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_STRNE(rows[i].text, "") << rows[i].variable;
    for (size_t j = i + 1; j < rows.size(); ++j) EXPECT_STRNE(rows[i].variable, rows[j].variable);
  }
}

}  // namespace
}  // namespace rewire
