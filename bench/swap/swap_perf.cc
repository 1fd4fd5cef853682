// swap_perf: the cost of a live swap of generations under load, at 2, 3 and 4 members, against a
// foreground re-creation and a foreground shrink in the same run. Figures of the simulated GPU are
// simulated figures.
//
// Every swap has two windows of the same operations. One window begins at the warm index and ends
// as far after the cut. The other window is undisturbed and lies shortly before the build
// (windows.h).
//
// stall: the additional time of the loop in the first window compared with the second, on the
// member where it is largest. The result is the upper end of the interval of the median over the
// swaps, and at least one ordinary operation's time.
//
// ops_delayed: an operation is delayed when some member measures it slower than the p99 of
// undisturbed operations of its kind, over all quiet stretches of the run. The swap's contribution
// is the number of delayed operations in its window minus the number in its undisturbed window. The
// result is the median of these differences over the swaps, at the number of members where it is
// largest. The report also has their mean, and the medians and means of both numbers.
//
// host_waits: number of times a member's program reached the warm index before the decision. The
// leader proposes cuts by the rule of the agent's leader (reconfig/elastic/leader/cut_rounds.h).

#include <algorithm>
#include <bit>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "bench/lib/command_line.h"
#include "bench/lib/report.h"
#include "bench/lib/statistics.h"
#include "bench/swap/leader.h"
#include "bench/swap/member.h"

namespace rewire::bench {

namespace {

// Number of operations in a window.
const double kWindow = 2.0 * static_cast<double>(LeaderOptions{}.distance);

struct Args {
  std::string ranks = "2,3,4";
  int64_t swaps = 334;
  int64_t baselines = 8;
  int64_t margin = 16;
  bool json = false;
  bool check = false;
  bool share = false;
  std::string library = "simulated";
  std::string libraries;
  int64_t member_fd = -1;
  int64_t member_rank = 0;
  int64_t member_ranks = 2;
};

std::vector<uint32_t> ParseRanks(const std::string& text) {
  std::vector<uint32_t> ranks;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (at % 2 == 0 ? c < '2' || c > '8' : c != ',') {
      fprintf(stderr, "swap_perf: --ranks '%s' is not a list of numbers from 2 to 8\n",
              text.c_str());
      exit(2);
    }
    if (at % 2 == 0) ranks.push_back(static_cast<uint32_t>(c - '0'));
  }
  return ranks;
}

// Returns, per swap, the value of the member with the largest.
template <typename Value>
std::vector<double> MaxOverMembers(const LeaderResult& result, Value value_of) {
  std::vector<double> most;
  for (size_t i = 0; i < result.members.front().seen.size(); ++i) {
    double value = value_of(result.members.front().seen.at(i));
    for (const MemberReport& member : result.members) {
      value = std::max(value, value_of(member.seen.at(i)));
    }
    most.push_back(value);
  }
  return most;
}

std::vector<double> MaxForeground(const LeaderResult& result,
                                  std::vector<double> MemberReport::*field) {
  std::vector<double> most(((result.members.front()).*field).size(), 0.0);
  for (const MemberReport& member : result.members) {
    const std::vector<double>& values = member.*field;
    for (size_t i = 0; i < std::min(values.size(), most.size()); ++i) {
      most[i] = std::max(most[i], values[i]);
    }
  }
  return most;
}

double MedianOf(std::vector<double> samples) {
  const absl::StatusOr<Summary> summary = Summarize(std::move(samples));
  return summary.ok() ? summary->median : 0;
}

struct Totals {
  uint64_t swaps = 0;
  uint64_t stale = 0;
  uint64_t lost = 0;
  uint64_t wrong = 0;
  int64_t fds = 0;
  int64_t threads = 0;
  uint64_t host_waits = 0;
  uint64_t refused = 0;
  std::vector<double> cut_cpu;
  double call_cpu_p50 = 0;
  double call_cpu_p99 = 0;
  double ordinary = 0;
  double stall = 0;
  // These are for the number of members where the median is largest.
  std::optional<Summary> delayed;
  std::optional<Summary> delayed_around;
  std::optional<Summary> delayed_undisturbed;
  std::optional<double> ratio_init;
  std::optional<double> ratio_shrink;
};

// Returns the number of operations in a swap's window that some member found slow.
std::vector<double> Delayed(const LeaderResult& result, uint64_t SwapSeen::*window) {
  std::vector<double> counts;
  for (size_t i = 0; i < result.members.front().seen.size(); ++i) {
    uint64_t bits = 0;
    for (const MemberReport& member : result.members) bits |= member.seen.at(i).*window;
    counts.push_back(std::popcount(bits));
  }
  return counts;
}

std::optional<Summary> SummaryOf(const std::vector<double>& samples) {
  absl::StatusOr<Summary> summary = Summarize(samples);
  return summary.ok() ? std::optional<Summary>(*summary) : std::nullopt;
}

nlohmann::ordered_json Number(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

std::string Ratio(const std::optional<double>& value) {
  return value ? absl::StrFormat("%.1fx", *value) : "not compared";
}

// Returns the libraries' folder and the number of members of each run.
std::vector<std::pair<std::string, uint32_t>> Runs(const Args& args) {
  std::vector<std::string> folders;
  if (args.libraries.empty()) {
    folders.emplace_back(args.library == "simulated" ? REWIRE_SIMGPU : "");
  } else {
    folders = absl::StrSplit(args.libraries, ':');
  }
  std::vector<std::pair<std::string, uint32_t>> runs;
  for (const std::string& folder : folders) {
    for (const uint32_t ranks : ParseRanks(args.ranks)) runs.emplace_back(folder, ranks);
  }
  return runs;
}

// `group` is the prefix of the measurements' keys.
void AddRun(uint32_t ranks, const LeaderResult& result, const std::string& group, Report* report,
            Totals* totals) {
  const std::string at = group + "ranks" + std::to_string(ranks) + ".";
  totals->swaps += result.entered;
  totals->refused += result.refused_rounds;
  uint64_t most = 0;
  for (const MemberReport& member : result.members) most = std::max(most, member.issued);
  for (const MemberReport& member : result.members) {
    totals->stale += member.stale;
    totals->wrong += member.wrong;
    totals->lost += most - member.completed;
    totals->fds += member.leaked_fds;
    totals->threads += member.leaked_threads;
    totals->host_waits += member.host_waits;
    for (const SwapSeen& seen : member.seen) totals->cut_cpu.push_back(seen.cut_cpu_us);
  }
  // The delay of the loop compared with an undisturbed stretch: at the warm index, at the cut,
  // both.
  const std::vector<double> stall_warm = MaxOverMembers(
      result, [](const SwapSeen& seen) { return seen.warm_us - seen.before_us / 2; });
  const std::vector<double> stall_cut =
      MaxOverMembers(result, [](const SwapSeen& seen) { return seen.cut_us - seen.before_us / 2; });
  const std::vector<double> stall = MaxOverMembers(
      result, [](const SwapSeen& seen) { return seen.warm_us + seen.cut_us - seen.before_us; });
  const std::vector<double> in_build =
      MaxOverMembers(result, [](const SwapSeen& seen) { return seen.build_us_per_op; });
  const std::vector<double> longest =
      MaxOverMembers(result, [](const SwapSeen& seen) { return seen.longest_us; });
  const std::vector<double> before =
      MaxOverMembers(result, [](const SwapSeen& seen) { return seen.before_us / kWindow; });
  const std::vector<double> delayed_around = Delayed(result, &SwapSeen::delayed);
  const std::vector<double> delayed_undisturbed = Delayed(result, &SwapSeen::delayed_before);
  std::vector<double> delayed = delayed_around;
  for (size_t i = 0; i < delayed.size(); ++i) delayed[i] -= delayed_undisturbed[i];
  double ordinary = 0;
  double spread = 0;
  for (const MemberReport& member : result.members) {
    ordinary = std::max(ordinary, member.median_op_us);
    spread = std::max(spread, member.op_spread_us);
    if (member.call_cpu_us.size() == 2) {
      totals->call_cpu_p50 = std::max(totals->call_cpu_p50, member.call_cpu_us[0]);
      totals->call_cpu_p99 = std::max(totals->call_cpu_p99, member.call_cpu_us[1]);
    }
  }
  totals->ordinary = std::max(totals->ordinary, ordinary);
  std::vector<double> init = MaxForeground(result, &MemberReport::init_us);
  std::vector<double> shrink = MaxForeground(result, &MemberReport::shrink_us);
  for (double& us : init) us -= ordinary;
  for (double& us : shrink) us -= ordinary;
  const std::tuple<const char*, const char*, const std::vector<double>*> all[] = {
      {"swap_stall", "us", &stall},
      {"swap_stall_at_warm_index", "us", &stall_warm},
      {"swap_stall_at_cut", "us", &stall_cut},
      {"iteration_during_build", "us", &in_build},
      {"swap_longest_op", "us", &longest},
      {"iteration_undisturbed", "us", &before},
      {"ops_delayed", "operations", &delayed},
      {"ops_delayed_around_swap", "operations", &delayed_around},
      {"ops_delayed_undisturbed", "operations", &delayed_undisturbed},
      {"foreground_init_stall", "us", &init},
      {"foreground_shrink_stall", "us", &shrink}};
  for (const auto& [key, unit, samples] : all) {
    const absl::Status added = report->AddSamples(at + key, unit, *samples);
    if (!added.ok()) fprintf(stderr, "swap_perf: %s: %s\n", key, added.ToString().c_str());
  }
  // The upper end of the median's interval: a noisy run makes the ratios smaller, never larger. The
  // lower limit is an ordinary operation, or the distance between the quartiles of its times:
  // smaller values cannot be resolved.
  const absl::StatusOr<Summary> summary = Summarize(stall);
  const double swap_stall =
      std::max({summary.ok() ? summary->median_interval.high : 0, ordinary, spread});
  totals->stall = std::max(totals->stall, swap_stall);
  const double ratio_init = MedianOf(init) / swap_stall;
  // A shrink of two members leaves one member, which connects to nobody: no valid comparison.
  std::optional<double> ratio_shrink;
  if (ranks > 2) ratio_shrink = MedianOf(shrink) / swap_stall;
  totals->ratio_init = std::min(totals->ratio_init.value_or(ratio_init), ratio_init);
  if (ratio_shrink) {
    totals->ratio_shrink = std::min(totals->ratio_shrink.value_or(*ratio_shrink), *ratio_shrink);
  }
  const std::optional<Summary> added = SummaryOf(delayed);
  const std::optional<Summary> around = SummaryOf(delayed_around);
  const std::optional<Summary> undisturbed = SummaryOf(delayed_undisturbed);
  if (!added || !around || !undisturbed) return;
  if (!totals->delayed || added->median > totals->delayed->median ||
      (added->median == totals->delayed->median && added->mean > totals->delayed->mean)) {
    totals->delayed = added;
    totals->delayed_around = around;
    totals->delayed_undisturbed = undisturbed;
  }
  fprintf(
      report->text(),
      "# %u members: %llu swaps, median stall %.0f us (warm index %.0f, cut %.0f; taken as %.0f; "
      "slowest operation %.0f us, ordinary %.0f +- %.0f us; an iteration undisturbed %.0f us, "
      "during the build %.0f us); init %.0f us = %.1fx, shrink %.0f us = %s; operations delayed "
      "around the swap mean %.2f, undisturbed %.2f: added median %.1f mean %.2f (quartiles %.1f "
      "apart); build %.1f ms\n",
      ranks, static_cast<unsigned long long>(result.entered), MedianOf(stall), MedianOf(stall_warm),
      MedianOf(stall_cut), swap_stall, MedianOf(longest), ordinary, spread / 2, MedianOf(before),
      MedianOf(in_build), MedianOf(init), ratio_init, MedianOf(shrink),
      ratio_shrink ? Ratio(ratio_shrink).c_str() : "not compared (a child of one rank)",
      around->mean, undisturbed->mean, added->median, added->mean, added->spread,
      result.members.front().build_ms);
}

int Main(int argc, char** argv) {
  Args args;
  CLI::App app(
      "live swaps of NCCL communicators under load. Stall: extra time of the loop from the "
      "warm index to as far behind the cut, over undisturbed operations before the build; "
      "median over the swaps, at least one ordinary operation. Operations delayed: what "
      "the swap adds to those that are slower than the undisturbed p99 of their kind",
      "swap_perf");
  app.add_option("--ranks", args.ranks, "numbers of members, for example 2,3,4");
  app.add_option("--swaps", args.swaps, "swaps per number of members")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--baselines", args.baselines, "measured foreground changes per kind")
      ->check(CLI::Range(1, 1000));
  app.add_option("--margin", args.margin, "minimum distance of a proposed cut, in operations")
      ->check(CLI::Range(3, 100000));
  app.add_option("--library", args.library,
                 "simulated: the simulated GPU and NCCL; found: the machine's")
      ->check(CLI::IsMember({"simulated", "found"}));
  app.add_flag("--share", args.share, "members may share a GPU; for --library found");
  app.add_option(
      "--libraries", args.libraries,
      "folders of builds of NCCL's host code, each measured: A:B (./dev bench swap --nccl)");
  app.add_flag("--json", args.json, "one JSON object on stdout, the text on stderr");
  app.add_flag("--check", args.check, "fail when an operation was stale, lost or wrong");
  app.add_option("--member-fd", args.member_fd, "a member's socket; set by the leader")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--member-rank", args.member_rank, "set by the leader")->check(CLI::Range(0, 7));
  app.add_option("--member-ranks", args.member_ranks, "set by the leader")->check(CLI::Range(1, 8));
  ParseOrExit(&app, argc, argv);
  if (args.member_fd >= 0) {
    MemberOptions member;
    member.fd = static_cast<int>(args.member_fd);
    member.rank = static_cast<uint32_t>(args.member_rank);
    member.ranks = static_cast<uint32_t>(args.member_ranks);
    member.baselines = static_cast<uint32_t>(args.baselines);
    return RunMember(member);
  }
  Report report("swap", args.json);
  Totals totals;
  for (const auto& [folder, ranks] : Runs(args)) {
    LeaderOptions options;
    options.ranks = ranks;
    options.swaps = static_cast<uint64_t>(args.swaps);
    options.baselines = static_cast<uint32_t>(args.baselines);
    options.margin = static_cast<uint64_t>(args.margin);
    options.libraries = folder;
    options.share = args.share;
    const absl::StatusOr<LeaderResult> result = Leader(options).Run();
    if (!result.ok()) {
      fprintf(stderr, "swap_perf: %u members: %s\n", ranks, result.status().ToString().c_str());
      return 1;
    }
    const bool nccl_host = !args.libraries.empty();
    const std::string name = std::filesystem::path(folder).filename().string();
    if (nccl_host) fprintf(report.text(), "# NCCL %s\n", name.c_str());
    AddRun(ranks, *result, nccl_host ? "nccl" + name + "." : "", &report, &totals);
  }
  std::sort(totals.cut_cpu.begin(), totals.cut_cpu.end());
  report.SetConfig("ranks", args.ranks);
  report.SetConfig("swaps_each", args.swaps);
  report.SetConfig("library", args.libraries.empty() ? args.library : args.libraries);
  report.Set("simulated", args.library == "simulated");
  report.Set("swaps", totals.swaps);
  report.Set("stale_ops", totals.stale);
  report.Set("lost_ops", totals.lost);
  report.Set("wrong_data", totals.wrong);
  report.Set("leaked_fds", totals.fds);
  report.Set("leaked_threads", totals.threads);
  report.Set("host_waits", totals.host_waits);
  report.Set("refused_rounds", totals.refused);
  report.Set("swap_call_cpu_us_p99", Percentile(totals.cut_cpu, 0.99));
  report.Set("ordinary_call_cpu_us_p50", totals.call_cpu_p50);
  report.Set("ordinary_call_cpu_us_p99", totals.call_cpu_p99);
  report.Set("ordinary_op_us", totals.ordinary);
  report.Set("stall_us", totals.stall);
  const Summary added = totals.delayed.value_or(Summary{});
  const Summary around = totals.delayed_around.value_or(Summary{});
  const Summary undisturbed = totals.delayed_undisturbed.value_or(Summary{});
  report.Set("ops_delayed", added.median);
  report.Set("ops_delayed_interval_95", {added.median_interval.low, added.median_interval.high});
  report.Set("ops_delayed_mean", added.mean);
  report.Set("ops_delayed_around_swap", {{"median", around.median}, {"mean", around.mean}});
  report.Set("ops_delayed_undisturbed",
             {{"median", undisturbed.median}, {"mean", undisturbed.mean}});
  report.Set("stall_ratio_vs_init", Number(totals.ratio_init));
  report.Set("stall_ratio_vs_shrink", Number(totals.ratio_shrink));
  report.Set("stall_ratio_vs_shrink_leaves_out", "2 members: the child has one rank");
  fprintf(
      report.text(),
      "# swaps %llu stale %llu lost %llu wrong %llu leaked fds %lld threads %lld host waits "
      "%llu refused rounds %llu\n# call at the cut: thread CPU p99 %.1f us (ordinary call p50 "
      "%.1f p99 %.1f); operations delayed per swap: median %.1f mean %.2f; stall vs init %s vs "
      "shrink %s (2 members left out)\n",
      static_cast<unsigned long long>(totals.swaps), static_cast<unsigned long long>(totals.stale),
      static_cast<unsigned long long>(totals.lost), static_cast<unsigned long long>(totals.wrong),
      static_cast<long long>(totals.fds), static_cast<long long>(totals.threads),
      static_cast<unsigned long long>(totals.host_waits),
      static_cast<unsigned long long>(totals.refused), Percentile(totals.cut_cpu, 0.99),
      totals.call_cpu_p50, totals.call_cpu_p99, added.median, added.mean,
      Ratio(totals.ratio_init).c_str(), Ratio(totals.ratio_shrink).c_str());
  if (const absl::Status written = report.Finish(); !written.ok()) {
    fprintf(stderr, "swap_perf: %s\n", written.ToString().c_str());
    return 1;
  }
  const bool broken = totals.stale + totals.lost + totals.wrong > 0 || totals.fds > 0;
  return args.check && broken ? 1 : 0;
}

}  // namespace

}  // namespace rewire::bench

int main(int argc, char** argv) { return rewire::bench::Main(argc, argv); }
