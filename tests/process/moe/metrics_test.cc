// Balancing in members' processes, as the agent's metrics report it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/fakes/process/background.h"
#include "tests/fakes/process/temporary_folder.h"

namespace rewire {
namespace {

constexpr char kBalanced[] = "balanced\n";

TEST(MoeMetricsTest, AgentReportsBalancingMetrics) {
  TemporaryFolder folder;
  const std::string socket = folder / "agent.sock";
  const std::string group = "metrics-" + std::to_string(::getpid());
  Background job({REWIRE_COMMAND, "run", "-n", "2", "--no-preload", "--socket", socket, "--",
                  BALANCED_MEMBER, group, folder / "stop"},
                 {"REWIRE_CUDA_LIBRARY=" REWIRE_SIMGPU "/libcuda.so.1", "SIMGPU_DEVICES=2"});
  ASSERT_TRUE(job.ReadUntil(
      [](const CommandResult& r) {
        const size_t first = r.out.find(kBalanced);
        return first != std::string::npos && r.out.find(kBalanced, first + 1) != std::string::npos;
      },
      seconds(60)))
      << job.End(seconds(1)).err;
  std::string text;
  const auto value = [&](const std::string& name, int member, const std::string& more = "") {
    const std::string line = name + "{member=\"" + std::to_string(member) + "\"" + more + "} ";
    const size_t at = text.find(line);
    return at == std::string::npos ? -1 : std::atoi(text.c_str() + at + line.size());
  };
  // The metrics arrive with the next heartbeats.
  const Time deadline = Now() + seconds(30);
  do {
    text = Rewire({"metrics", "--socket", socket}).out;
  } while (Now() < deadline &&
           (value("rewire_moe_rounds_total", 0) != 6 || value("rewire_moe_rounds_total", 1) != 6));
  for (const int member : {0, 1}) {
    EXPECT_EQ(value("rewire_moe_rounds_total", member), 6) << text;
    EXPECT_EQ(value("rewire_moe_budget_experts", member), 16);
    EXPECT_GE(value("rewire_moe_late_rounds_total", member), 0);
    EXPECT_GT(value("rewire_moe_copied_bytes_total", member), 0);
    for (const char* reason : {"late", "copies_fail", "broken"}) {
      const std::string label = ",reason=\"" + std::string(reason) + "\"";
      EXPECT_EQ(value("rewire_moe_off_total", member, label), 0) << text;
    }
  }
  EXPECT_GT(value("rewire_moe_moves_total", 0), 0);
  EXPECT_EQ(value("rewire_moe_moves_total", 1), 0);
  std::ofstream(folder / "stop") << "now";
  const CommandResult end = job.End(seconds(30));
  EXPECT_EQ(end.status, 0) << end.err;
}

}  // namespace
}  // namespace rewire
