#include "tests/process/agent/job.h"

#include <gtest/gtest.h>

#include <fstream>

namespace rewire {
namespace {

std::vector<std::string> RunArguments(const TemporaryFolder& folder, int members, int max,
                                      const std::vector<std::string>& options,
                                      const std::string& script) {
  std::vector<std::string> argv = {REWIRE_COMMAND,
                                   "run",
                                   "-n",
                                   std::to_string(members),
                                   "--max",
                                   std::to_string(max),
                                   "--no-preload",
                                   "--dir",
                                   folder / "run",
                                   "--socket",
                                   folder / "agent.sock",
                                   "--trace-dir",
                                   folder / "traces"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.push_back("--");
  if (!script.empty()) argv.insert(argv.end(), {"/bin/sh", "-c", script});
  argv.insert(argv.end(), {REWIRE_TOY_MEMBER, folder / "stop"});
  return argv;
}

}  // namespace

Job::Job(int members, int max, const std::vector<std::string>& options, const std::string& script)
    : launcher_(RunArguments(folder_, members, max, options, script)) {
  // The world is formed when each initial member has printed that the member entered epoch 1.
  const bool formed = launcher_.ReadUntil(
      [members](const CommandResult& r) {
        size_t count = 0;
        for (size_t at = 0; (at = r.out.find("entered epoch 1\n", at)) != std::string::npos; ++at) {
          ++count;
        }
        return count == static_cast<size_t>(members);
      },
      seconds(20));
  EXPECT_TRUE(formed) << launcher_.End(seconds(1)).err;
}

CommandResult Job::Ask(const std::string& command, std::vector<std::string> arguments) {
  std::vector<std::string> all = {command, "--socket", socket()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Rewire(all);
}

nlohmann::json Job::Status() {
  const CommandResult r = Ask("status", {"--json"});
  EXPECT_EQ(r.status, 0) << r.err;
  return nlohmann::json::parse(r.out, nullptr, false);
}

std::vector<int> Job::World() {
  std::vector<int> out;
  const nlohmann::json status = Status();
  for (const auto& m : status["world"]["members"]) out.push_back(m["member"].get<int>());
  return out;
}

CommandResult Job::Finish() {
  std::ofstream(folder_ / "stop") << "now";
  return launcher_.End(seconds(20));
}

}  // namespace rewire
