// A job of one of this folder's programs on the simulated GPU under `rewire run`, and the commands
// and files that drive it. For the tests of this folder; owned by one thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reconfig/base/clock.h"
#include "tests/fakes/process/background.h"
#include "tests/fakes/process/sim_libraries.h"
#include "tests/fakes/process/temporary_folder.h"
#include "tests/fakes/process/times.h"

namespace rewire {

class CommunicatorsJob : public ::testing::Test {
 protected:
  explicit CommunicatorsJob(std::string program) : program_(std::move(program)) {}
  // environment: may set REWIRE_BUILD_MS, which is otherwise long enough for NCCL's own host code
  // on a busy host. options: of `rewire run`.
  void Start(int ranks, const std::string& mode, std::vector<std::string> environment = {},
             const std::vector<std::string>& options = {}) {
    ranks_ = static_cast<size_t>(ranks);
    const bool limits_builds =
        std::any_of(environment.begin(), environment.end(),
                    [](const std::string& line) { return line.starts_with("REWIRE_BUILD_MS="); });
    if (!limits_builds) environment.emplace_back("REWIRE_BUILD_MS=240000");
    std::vector<std::string> command = {REWIRE_COMMAND,
                                        "run",
                                        "-n",
                                        std::to_string(ranks),
                                        "--sim=" + SimLibraries(REWIRE_SIMGPU),
                                        "--dir",
                                        folder_ / "run",
                                        "--socket",
                                        Socket()};
    command.insert(command.end(), options.begin(), options.end());
    command.insert(command.end(), {"--", program_, folder_ / "", mode});
    job_.emplace(command, environment);
    Await("ready\n", seconds(60));
  }
  std::string Socket() const { return folder_ / "agent.sock"; }
  // Waits until every rank has printed a line with this text.
  void Await(const std::string& text, Duration within = seconds(30)) {
    const bool said = job_->ReadUntil(
        [&](const CommandResult& r) { return Times(r.out, text) >= ranks_; }, within);
    if (said) return;
    const CommandResult end = job_->End(seconds(1));
    FAIL() << "not all said " << text << "\n" << end.out << end.err;
  }
  void Touch(const std::string& name) { std::ofstream(folder_ / name) << "now"; }
  CommandResult Ask(const std::string& command, std::vector<std::string> more = {}) {
    std::vector<std::string> all = {command, "--socket", Socket()};
    all.insert(all.end(), more.begin(), more.end());
    return Rewire(all, seconds(300));
  }
  nlohmann::json Status() {
    const CommandResult r = Ask("status", {"--json"});
    nlohmann::json status = nlohmann::json::parse(r.out, nullptr, false);
    return status.is_object() ? status : nlohmann::json::object();
  }
  // Returns the number of pending swaps whose reason has this text.
  size_t Pending(const std::string& why) {
    size_t count = 0;
    // A job that has ended has none.
    const nlohmann::json pending = Status().value("pending", nlohmann::json::array());
    for (const auto& p : pending) {
      count += p["why"].get<std::string>().find(why) != std::string::npos ? 1 : 0;
    }
    return count;
  }
  // Communicators in use pass their cuts within moments; the others stay pending.
  void AwaitPending(const std::string& why, size_t count) {
    const Time until = Now() + seconds(30);
    while (Pending(why) != count && Now() < until) {
    }
    EXPECT_EQ(Pending(why), count) << why << "\n" << Ask("status").out;
  }
  void AwaitPinned(size_t count) {
    const Time until = Now() + seconds(30);
    while (Status()["pinned"].size() != count && Now() < until) {
    }
    EXPECT_EQ(Status()["pinned"].size(), count) << Ask("status").out;
  }
  // A preparation that fails on a busy host begins again with the next epoch.
  void Rebuild(int epoch) {
    const CommandResult r = Ask("rebuild");
    ASSERT_EQ(r.status, 0) << r.out << r.err;
    EXPECT_GE(Status()["epoch"], epoch);
  }
  void Finish() {
    Touch("stop");
    const CommandResult end = job_->End(seconds(60));
    EXPECT_EQ(end.status, 0) << end.out << end.err;
    EXPECT_EQ(Times(end.out, " done\n"), ranks_);
    EXPECT_EQ(Times(end.out, "failed"), 0u) << end.out;
  }

  const std::string program_;
  TemporaryFolder folder_;
  std::optional<Background> job_;
  size_t ranks_ = 0;
};

}  // namespace rewire
