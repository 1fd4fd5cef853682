// The texts of the command: durations, tables, status, and the refusal of an unknown command.
#include "reconfig/control/cli/command_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reconfig/base/settings.h"
#include "reconfig/control/cli/commands.h"

namespace rewire::control {
namespace {

using ::testing::HasSubstr;

TEST(DurationTest, ParsesUnits) {
  EXPECT_EQ(*ParseDuration("120s"), milliseconds(120000));
  EXPECT_EQ(*ParseDuration("120"), milliseconds(120000));
  EXPECT_EQ(*ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(*ParseDuration("2m"), milliseconds(120000));
  EXPECT_EQ(*ParseDuration("1.5min"), milliseconds(90000));
  EXPECT_EQ(*ParseDuration("1h"), milliseconds(3600000));
  EXPECT_EQ(*ParseDuration("0"), milliseconds(0));
  EXPECT_EQ(*ParseDuration("864000s"), milliseconds(864000000));
  for (const char* wrong : {"", "s", "-1s", "1 s", "1d", "1e3", "nan", "inf", "864001s", "1s2"}) {
    const auto d = ParseDuration(wrong);
    EXPECT_FALSE(d.ok()) << wrong;
    EXPECT_THAT(std::string(d.status().message()), HasSubstr("'" + std::string(wrong) + "'"));
  }
}

TEST(DurationTest, PrintsShortText) {
  EXPECT_EQ(DurationText(0.25), "0.2 ms");
  EXPECT_EQ(DurationText(812.4), "812 ms");
  EXPECT_EQ(DurationText(3210), "3.2 s");
  EXPECT_EQ(DurationText(125000), "2 min 5 s");
}

TEST(KnobsTest, EveryFormatListsEverySetting) {
  const std::string text = KnobsTable(KnobsFormat::kText);
  const std::string markdown = KnobsTable(KnobsFormat::kMarkdown);
  const auto json = nlohmann::json::parse(KnobsTable(KnobsFormat::kJson));
  EXPECT_EQ(json["settings"].size(), Settings::Table().size());
  for (const SettingRow& row : Settings::Table()) {
    EXPECT_THAT(text, HasSubstr(row.variable));
    EXPECT_THAT(markdown, HasSubstr("| `" + std::string(row.variable) + "` |"));
  }
  // Each row has five bars: no value breaks the table.
  std::istringstream in(markdown);
  for (std::string line; std::getline(in, line);) {
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 5) << line;
  }
}

TEST(StatusTextTest, ShowsMembersAndTransitions) {
  const nlohmann::json transition = {{"from_epoch", 2},
                                     {"to_epoch", 3},
                                     {"kind", "boundary"},
                                     {"result", "committed"},
                                     {"prepare_ms", 1200},
                                     {"total_ms", 1300},
                                     {"pause_ms_max", 12},
                                     {"bytes", 3145728},
                                     {"host_waits", 0},
                                     {"reason", ""},
                                     {"phase", "ARMED"},
                                     {"waiting_for", {{{"member", 4}, {"for", "prepare"}}}},
                                     {"waits", "new member 5 is not connected"}};
  nlohmann::json aborted = transition;
  aborted["result"] = "aborted";
  aborted["reason"] = "no room";
  nlohmann::json swap = transition;
  swap["kind"] = "swap";
  const nlohmann::json pending = {
      {{"communicator", "aaaa0001"}, {"member", 7}, {"epoch", 3}, {"why", "idle"}}};
  const nlohmann::json pinned = {
      {{"communicator", "bbbb0002"}, {"member", 7}, {"for_ms", 3000.0}, {"why", "a graph"}}};
  const nlohmann::json status = {{"job", "night"},
                                 {"epoch", 3},
                                 {"phase", "STEADY"},
                                 {"max_members", 4},
                                 {"loss", "member 4 is lost: its connection ended"},
                                 {"members",
                                  {{{"slot", 0},
                                    {"member", 7},
                                    {"pid", 12},
                                    {"state", "training"},
                                    {"updates", 5},
                                    {"last_heard_ms", 20.0}},
                                   {{"slot", nullptr},
                                    {"member", 4},
                                    {"pid", nullptr},
                                    {"state", "gone"},
                                    {"updates", 0},
                                    {"last_heard_ms", nullptr}}}},
                                 {"transition", transition},
                                 {"unattached", {{{"member", 9}, {"pid", 31}}}},
                                 {"pending", pending},
                                 {"pinned", pinned},
                                 {"transitions", {transition, aborted, swap}}};
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("job night  epoch 3  STEADY  at most 4 members\n"));
  EXPECT_THAT(text, HasSubstr("    0       7       12  training              5  20 ms ago\n"));
  EXPECT_THAT(text, HasSubstr("    -       4        -  gone                  0  -\n"));
  EXPECT_THAT(text, HasSubstr("\nmember 4 is lost: its connection ended\n"));
  EXPECT_THAT(text, HasSubstr("  waiting for member 4: prepare\n"));
  EXPECT_THAT(text, HasSubstr("  waits: new member 5 is not connected\n"));
  EXPECT_THAT(text,
              HasSubstr("epoch 2→3 boundary committed: prepared in 1.2 s, whole 1.3 s, pause at "
                        "most 12 ms, 3.0 MiB moved, 0 host waits\n"));
  EXPECT_THAT(text, HasSubstr("epoch 2→3 boundary aborted: no room\n"));
  EXPECT_THAT(text, HasSubstr("epoch 2→3 swap committed: prepared in 1.2 s, whole 1.3 s, 0 host "
                              "waits\n"));
  EXPECT_THAT(text, HasSubstr("attaches with its first communicator:\n  member 9, process 31\n"));
  EXPECT_THAT(text, HasSubstr("pending swaps:\n  communicator aaaa0001 on member 7, to epoch 3: "
                              "idle\n"));
  EXPECT_THAT(text,
              HasSubstr("pinned communicators, which are not rebuilt:\n  communicator bbbb0002 "
                        "on member 7, for 3.0 s: a graph\n"));
}

TEST(CommandLineTest, NamesUnknownCommand) {
  for (const std::vector<std::string>& line : {std::vector<std::string>{"frobnicate"},
                                               {"frobnicate", "--now"},
                                               {"frobnicate", "-n", "2"}}) {
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(RunCommandLine(line), kExitUsage);
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              "rewire: frobnicate: not a command of rewire; `rewire --help` lists the commands\n");
  }
}

}  // namespace
}  // namespace rewire::control
