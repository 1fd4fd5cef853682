// overhead_perf: the additional cost of a training step under Rewire while no change is pending.
//
// A small GPT is trained in a job of its own (`rewire run`). Its steps alternate between runs with
// and without Rewire, in the same processes, on the same state and device (steps.cc). One round has
// two steps of every way. All members' steps of a round are summed, and the change of a round is
// the ratio of the sums minus one. The results are the median over the rounds and its 95 % interval
// from order statistics, without an assumed distribution. The control is a third way: plain steps
// on another communicator. The control's interval is the resolution of this machine and method.
//
//   cpu_ns_per_step_change   thread CPU time of a step, as a share (0.003 = 0.3 %): ZeRO 0, every
//                            tensor registered, a live agent, nothing pending;
//   wall_change_interval_95  wall-clock time of a step, the share's 95 % interval;
//   background_cpu_share     CPU time of Rewire's own threads, of the agent and of the launcher, as
//                            a share of the training threads' time, which excludes them;
//   buddy_*                  the same under ZeRO 1, where every update is also copied into the next
//                            slot's host memory (REWIRE_BUDDY): work that is asked for;
//   update_ns_median         a call of rewireUpdate() minus a plain call of its function, with a
//                            live agent and constant tensors; update_volatile_ns_median: also a
//                            volatile tensor, which is copied after every update
//
// Figures of the simulated GPU are simulated figures.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/lib/statistics.h"
#include "bench/overhead/job.h"
#include "reconfig/base/status_macros.h"

namespace rewire::bench {
namespace {

struct Args {
  int64_t members = 2;
  int64_t rounds = 400;
  int64_t buddy_rounds = 30;
  int64_t updates = 200000;
  bool json = false;
  std::string library = "simulated";
  std::string member_task;
  std::string member_out;
  int64_t zero = 0;
  int64_t block = 1;
  std::string tensors = "none";
};

// Totals() sums this clock's time over all members, for each round.
enum class Clock { kCpu, kWall };

std::vector<double> Totals(const std::vector<Samples>& members, Clock clock, Way way) {
  std::vector<double> totals(members.front().rounds.size(), 0.0);
  for (const Samples& member : members) {
    for (size_t i = 0; i < std::min(totals.size(), member.rounds.size()); ++i) {
      const Round& round = member.rounds[i];
      const auto& times = clock == Clock::kCpu ? round.cpu_ns : round.wall_ns;
      totals[i] += static_cast<double>(times[static_cast<int>(way)]);
    }
  }
  return totals;
}

struct Change {
  Summary ratio;  // of the time with Rewire to the time without, minus one
  std::vector<double> samples;
};

absl::StatusOr<Change> ChangeOf(const std::vector<Samples>& members, Clock clock, Way way) {
  Change change;
  change.samples = Totals(members, clock, way);
  const std::vector<double> plain = Totals(members, clock, Way::kPlain);
  for (size_t i = 0; i < plain.size(); ++i) change.samples[i] = change.samples[i] / plain[i] - 1;
  REWIRE_ASSIGN_OR_RETURN(change.ratio, Summarize(change.samples));
  return change;
}

nlohmann::ordered_json Ends(const Change& change) {
  return {change.ratio.median_interval.low, change.ratio.median_interval.high};
}

std::string Percent(const Change& change) {
  return absl::StrFormat("%+.3f %% [%+.3f, %+.3f]", change.ratio.median * 100,
                         change.ratio.median_interval.low * 100,
                         change.ratio.median_interval.high * 100);
}

class Overhead {
 public:
  Overhead(const Args& args, Report* report) : args_(args), report_(report) {
    job_.members = static_cast<uint32_t>(args.members);
    job_.simulated = args.library == "simulated";
  }

  absl::Status Run() {
    if (args_.updates > 0) {
      REWIRE_RETURN_IF_ERROR(Updates("constant", "update"));
      REWIRE_RETURN_IF_ERROR(Updates("volatile", "update_volatile"));
    }
    MemberOptions steps;
    steps.task = "steps";
    steps.rounds = static_cast<uint64_t>(args_.rounds);
    if (args_.rounds > 0) REWIRE_RETURN_IF_ERROR(Steps(steps, ""));
    steps.rounds = static_cast<uint64_t>(args_.buddy_rounds);
    steps.zero = 1;
    steps.block = 4;
    return args_.buddy_rounds > 0 ? Steps(steps, "buddy_") : absl::OkStatus();
  }

 private:
  absl::Status Updates(const std::string& tensors, const std::string& key) {
    MemberOptions options;
    options.task = "updates";
    options.updates = static_cast<uint64_t>(args_.updates);
    options.tensors = tensors;
    REWIRE_ASSIGN_OR_RETURN(const std::vector<Samples> members, RunJob(job_, options));
    std::vector<double> all;
    for (const Samples& member : members) {
      all.insert(all.end(), member.update_ns.begin(), member.update_ns.end());
    }
    REWIRE_ASSIGN_OR_RETURN(const Summary summary, Summarize(all));
    report_->Set(key + "_ns_median", summary.median);
    fprintf(report_->text(),
            "# rewireUpdate(), %s tensors: %.0f ns more than a plain call (p99 %.0f)\n",
            tensors.c_str(), summary.median, summary.p99);
    return report_->AddSamples(key + "_ns", "ns", all);
  }

  absl::Status Steps(const MemberOptions& options, const std::string& prefix) {
    REWIRE_ASSIGN_OR_RETURN(const std::vector<Samples> members, RunJob(job_, options));
    REWIRE_ASSIGN_OR_RETURN(const Change cpu, ChangeOf(members, Clock::kCpu, Way::kRewire));
    REWIRE_ASSIGN_OR_RETURN(const Change wall, ChangeOf(members, Clock::kWall, Way::kRewire));
    REWIRE_ASSIGN_OR_RETURN(const Change cpu_control,
                            ChangeOf(members, Clock::kCpu, Way::kControl));
    REWIRE_ASSIGN_OR_RETURN(const Change wall_control,
                            ChangeOf(members, Clock::kWall, Way::kControl));
    const double steps = static_cast<double>(members.front().steps_of_round * members.size());
    REWIRE_ASSIGN_OR_RETURN(const Summary plain_cpu,
                            Summarize(Totals(members, Clock::kCpu, Way::kPlain)));
    REWIRE_ASSIGN_OR_RETURN(const Summary plain_wall,
                            Summarize(Totals(members, Clock::kWall, Way::kPlain)));
    const double step_cpu_ns = plain_cpu.median / steps;
    report_->Set(prefix + "step_cpu_ns", step_cpu_ns);
    report_->Set(prefix + "step_wall_ns", plain_wall.median / steps);
    report_->Set(prefix + "cpu_ns_per_step_change", cpu.ratio.median);
    report_->Set(prefix + "cpu_change_interval_95", Ends(cpu));
    report_->Set(prefix + "cpu_ns_added_per_step", cpu.ratio.median * step_cpu_ns);
    report_->Set(prefix + "wall_change", wall.ratio.median);
    report_->Set(prefix + "wall_change_interval_95", Ends(wall));
    report_->Set(prefix + "control_cpu_change_interval_95", Ends(cpu_control));
    report_->Set(prefix + "control_wall_change_interval_95", Ends(wall_control));
    fprintf(report_->text(),
            "# %s: step %.2f ms, thread CPU %.2f ms (median of %zu rounds)\n"
            "#   with Rewire   thread CPU %s, wall %s\n"
            "#   control       thread CPU %s, wall %s\n",
            options.zero == 0 ? "ZeRO 0" : "ZeRO 1 with buddy copies",
            plain_wall.median / steps / 1e6, step_cpu_ns / 1e6, cpu.samples.size(),
            Percent(cpu).c_str(), Percent(wall).c_str(), Percent(cpu_control).c_str(),
            Percent(wall_control).c_str());
    Background(members, step_cpu_ns, prefix);
    REWIRE_RETURN_IF_ERROR(report_->AddSamples(prefix + "cpu_change", "share", cpu.samples));
    REWIRE_RETURN_IF_ERROR(report_->AddSamples(prefix + "wall_change", "share", wall.samples));
    REWIRE_RETURN_IF_ERROR(
        report_->AddSamples(prefix + "control_cpu_change", "share", cpu_control.samples));
    return report_->AddSamples(prefix + "control_wall_change", "share", wall_control.samples);
  }

  // The agent and the launcher serve all members, during the steps of every way alike. Rewire's
  // threads copy only for steps with Rewire.
  void Background(const std::vector<Samples>& members, double step_cpu_ns,
                  const std::string& prefix) {
    double threads = 0;
    for (const Samples& member : members) threads += static_cast<double>(member.threads_cpu_ns);
    const Samples& first = members.front();
    const double rewire_steps = static_cast<double>(first.rewire_steps * members.size());
    const double threads_share = threads / rewire_steps / step_cpu_ns;
    const double all_steps = rewire_steps * kWays;
    const double agent_share = static_cast<double>(first.agent_cpu_ns) / all_steps / step_cpu_ns;
    report_->Set(prefix + "background_cpu_share", threads_share + agent_share);
    report_->Set(prefix + "background_threads_cpu_share", threads_share);
    report_->Set(prefix + "background_agent_cpu_share", agent_share);
    fprintf(
        report_->text(),
        "#   beside the training thread: Rewire's threads %.3f %%, agent and launcher %.3f %% of "
        "a step's thread CPU\n",
        threads_share * 100, agent_share * 100);
  }

  const Args& args_;
  Report* const report_;
  JobOptions job_;
};

MemberOptions MemberOf(const Args& args) {
  MemberOptions member;
  member.task = args.member_task;
  member.out = args.member_out;
  member.rounds = static_cast<uint64_t>(args.rounds);
  member.zero = static_cast<int>(args.zero);
  member.block = static_cast<uint64_t>(args.block);
  member.updates = static_cast<uint64_t>(args.updates);
  member.tensors = args.tensors;
  return member;
}

int Main(int argc, char** argv) {
  Args args;
  CLI::App app(
      "what a training step costs more under Rewire while nothing is pending: steps with "
      "and without it in turn, in the same processes",
      "overhead_perf");
  app.add_option("--members", args.members, "members of the job")->check(CLI::Range(1, 8));
  app.add_option("--rounds", args.rounds, "rounds of six steps, ZeRO 0; 0: skip")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--buddy-rounds", args.buddy_rounds, "rounds of 24 steps, ZeRO 1; 0: skip")
      ->check(CLI::Range(0, 1000000));
  app.add_option("--updates", args.updates, "calls of rewireUpdate() alone; 0: skip")
      ->check(CLI::Range(0, 1000000000));
  app.add_option(
         "--library", args.library,
         "simulated: the simulated GPU and NCCL; found: REWIRE_NCCL_LIBRARY and the machine's")
      ->check(CLI::IsMember({"simulated", "found"}));
  app.add_flag("--json", args.json, "one JSON object on stdout, the text on stderr");
  app.add_option("--member-task", args.member_task, "set in a member")
      ->check(CLI::IsMember({"steps", "updates"}));
  app.add_option("--member-out", args.member_out, "set in a member");
  app.add_option("--zero", args.zero, "set in a member")->check(CLI::Range(0, 1));
  app.add_option("--block", args.block, "set in a member")->check(CLI::Range(1, 1000));
  app.add_option("--tensors", args.tensors, "set in a member")
      ->check(CLI::IsMember({"none", "constant", "volatile"}));
  ParseOrExit(&app, argc, argv);
  if (!args.member_task.empty()) return RunMember(MemberOf(args));
  Report report("overhead", args.json);
  report.SetConfig("members", args.members);
  report.SetConfig("rounds", args.rounds);
  report.SetConfig("buddy_rounds", args.buddy_rounds);
  report.SetConfig("updates", args.updates);
  report.SetConfig("library", args.library);
  report.Set("simulated", args.library == "simulated");
  absl::Status status = Overhead(args, &report).Run();
  if (status.ok()) status = report.Finish();
  if (status.ok()) return 0;
  fprintf(stderr, "overhead_perf: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace
}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
