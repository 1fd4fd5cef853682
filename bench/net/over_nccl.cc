#include "bench/net/over_nccl.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/lib/statistics.h"
#include "bench/net/control.h"
#include "bench/net/nccl_rank.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::bench {
namespace {

struct Cell {
  RankWork::Kind kind;
  const char* name;
  uint64_t bytes;
  uint64_t count;  // operations in one sample
  int samples;     // samples in each round
};

// The counts take 10 to 60 ms on two processors. Ping-pongs of large messages scatter by a fifth,
// so they have more samples.
constexpr Cell kCells[] = {{RankWork::kPingPong, "pingpong", 8, 300, 4},
                           {RankWork::kPingPong, "pingpong", 1 << 10, 300, 4},
                           {RankWork::kPingPong, "pingpong", 64 << 10, 150, 4},
                           {RankWork::kPingPong, "pingpong", 1 << 20, 40, 8},
                           {RankWork::kPingPong, "pingpong", 16 << 20, 3, 8},
                           {RankWork::kPingPong, "pingpong", 64 << 20, 1, 6},
                           {RankWork::kAllReduce, "allreduce", 8, 400, 4},
                           {RankWork::kAllReduce, "allreduce", 1 << 10, 400, 4},
                           {RankWork::kAllReduce, "allreduce", 64 << 10, 200, 4},
                           {RankWork::kAllReduce, "allreduce", 1 << 20, 50, 6},
                           {RankWork::kAllReduce, "allreduce", 16 << 20, 4, 4},
                           {RankWork::kAllReduce, "allreduce", 64 << 20, 1, 4}};
constexpr uint64_t kMostBytes = 64 << 20;
// A restarted process has other memory and other connections, so its times differ.
constexpr int kStarts = 6;
constexpr int kPatienceSeconds = 120;

// The two rank processes of one communicator.
class Pair {
 public:
  static absl::StatusOr<std::unique_ptr<Pair>> Start(const std::string& folder, bool plugin) {
    std::unique_ptr<Pair> pair(new Pair);
    for (int rank = 0; rank < kRanks; ++rank) {
      int ends[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return absl::InternalError("socketpair");
      }
      fflush(nullptr);
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        _exit(RunRank({folder, plugin, rank, kMostBytes}, Control(ends[1], false)));
      }
      close(ends[1]);
      if (child < 0) return absl::InternalError("fork");
      const timeval patience{kPatienceSeconds, 0};
      setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      pair->ranks_[static_cast<size_t>(rank)] = {child, UniqueFd(ends[0])};
    }
    std::array<char, sizeof(ncclUniqueId)> id;
    REWIRE_RETURN_IF_ERROR(pair->Hear(0, &id));
    pair->Tell(1, id);
    for (size_t rank = 0; rank < kRanks; ++rank) {
      REWIRE_RETURN_IF_ERROR(pair->Hear(rank, &pair->version_));
    }
    return pair;
  }

  ~Pair() {
    for (const Rank& rank : ranks_) {
      if (rank.process <= 0) continue;
      kill(rank.process, SIGKILL);
      waitpid(rank.process, nullptr, 0);
    }
  }

  [[nodiscard]] int version() const { return version_; }

  // Returns rank 0's time, and both ranks' processor time and errors.
  absl::StatusOr<RankSample> Do(const RankWork& work) {
    for (size_t rank = 0; rank < kRanks; ++rank) Tell(rank, work);
    RankSample sample;
    RankSample other;
    REWIRE_RETURN_IF_ERROR(Hear(0, &sample));
    REWIRE_RETURN_IF_ERROR(Hear(1, &other));
    sample.cpu_seconds += other.cpu_seconds;
    sample.wrong += other.wrong;
    return sample;
  }

  absl::Status End() {
    for (size_t rank = 0; rank < kRanks; ++rank) Tell(rank, RankWork{});
    for (Rank& rank : ranks_) {
      int status = 0;
      waitpid(std::exchange(rank.process, 0), &status, 0);
      if (status != 0) return absl::UnavailableError("a rank has failed at its end");
    }
    return absl::OkStatus();
  }

 private:
  struct Rank {
    pid_t process = 0;
    UniqueFd control;
  };

  Pair() = default;

  // Ignores errors: Hear() reports a rank that has ended.
  template <typename T>
  void Tell(size_t rank, const T& what) {
    (void)send(ranks_[rank].control.get(), &what, sizeof what, MSG_NOSIGNAL);
  }
  template <typename T>
  absl::Status Hear(size_t rank, T* what) {
    const ssize_t n = recv(ranks_[rank].control.get(), what, sizeof *what, MSG_WAITALL);
    if (n == static_cast<ssize_t>(sizeof *what)) return absl::OkStatus();
    return n < 0 ? absl::DeadlineExceededError(
                       absl::StrCat("no answer of rank ", rank, " in ", kPatienceSeconds, " s"))
                 : absl::UnavailableError(absl::StrCat("rank ", rank, " has ended"));
  }

  std::array<Rank, kRanks> ranks_;
  int version_ = 0;
};

struct Series {
  std::vector<double> us;
  std::vector<double> cpu_us;
};

// The worst values of all measurements.
struct Worst {
  double latency = 0;
  double bandwidth = 1e9;
  double cpu = 0;
  uint64_t wrong = 0;
};

absl::Status Describe(const std::string& version, const Cell& cell, const Series& ours,
                      const Series& theirs, Worst* worst, Report* report) {
  REWIRE_ASSIGN_OR_RETURN(const Summary mine, Summarize(ours.us));
  REWIRE_ASSIGN_OR_RETURN(const Summary other, Summarize(theirs.us));
  REWIRE_ASSIGN_OR_RETURN(const Summary time, PairedRatio(ours.us, theirs.us));
  REWIRE_ASSIGN_OR_RETURN(const Summary cpu, PairedRatio(ours.cpu_us, theirs.cpu_us));
  fprintf(report->text(), "  %9s  %9llu  %10.1f %9.1f  %10.1f %9.1f  %6.3f %6.3f  %6.3f %6.3f\n",
          cell.name, static_cast<unsigned long long>(cell.bytes), mine.median, mine.spread,
          other.median, other.spread, time.median, time.spread, cpu.median, cpu.spread);
  if (cell.kind == RankWork::kPingPong) worst->latency = std::max(worst->latency, time.median);
  if (cell.kind == RankWork::kAllReduce) {
    worst->bandwidth = std::min(worst->bandwidth, 1 / time.median);
  }
  worst->cpu = std::max(worst->cpu, cpu.median);
  const std::string at = absl::StrCat(version, "_", cell.name, "_", cell.bytes);
  report->Set(absl::StrCat("time_ratio_", at), time.median);
  report->Set(absl::StrCat("time_ratio_spread_", at), time.spread);
  report->Set(absl::StrCat("cpu_ratio_", at), cpu.median);
  REWIRE_RETURN_IF_ERROR(report->AddSamples(absl::StrCat("plugin_", at), "us", ours.us));
  REWIRE_RETURN_IF_ERROR(report->AddSamples(absl::StrCat("nccl_socket_", at), "us", theirs.us));
  REWIRE_RETURN_IF_ERROR(report->AddSamples(absl::StrCat("plugin_cpu_", at), "us", ours.cpu_us));
  return report->AddSamples(absl::StrCat("nccl_socket_cpu_", at), "us", theirs.cpu_us);
}

using Both = std::pair<Series, Series>;  // over the plugin, over NCCL's sockets
using Cells = std::array<Both, std::size(kCells)>;

// Measures one start of all processes; the first round is a warm-up.
absl::StatusOr<int> MeasureStart(const std::string& folder, int64_t rounds, Cells* all,
                                 Worst* worst) {
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Pair> plugin, Pair::Start(folder, true));
  REWIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Pair> socket, Pair::Start(folder, false));
  uint32_t seed = 0;
  for (int64_t round = -1; round < rounds; ++round) {
    for (size_t c = 0; c < std::size(kCells); ++c) {
      const Cell& cell = kCells[c];
      // The two sides take turns in running first.
      for (int i = 0; i < 2 * cell.samples; ++i) {
        const bool ours = (i % 2 == 0) == ((round + i / 2) % 2 == 0);
        REWIRE_ASSIGN_OR_RETURN(
            const RankSample sample,
            (ours ? plugin : socket)->Do({cell.kind, ++seed, cell.bytes, cell.count}));
        worst->wrong += sample.wrong;
        if (round < 0) continue;
        Series& series = ours ? all->at(c).first : all->at(c).second;
        const double each = 1e6 / static_cast<double>(cell.count);
        series.us.push_back(sample.seconds * each);
        series.cpu_us.push_back(sample.cpu_seconds * each);
      }
    }
  }
  REWIRE_RETURN_IF_ERROR(plugin->End());
  REWIRE_RETURN_IF_ERROR(socket->End());
  return plugin->version();
}

absl::Status MeasureBuild(const std::string& folder, int64_t rounds, Worst* worst, Report* report) {
  Cells all;
  int v = 0;
  for (int i = 0; i < kStarts; ++i) {
    REWIRE_ASSIGN_OR_RETURN(v, MeasureStart(folder, rounds, &all, worst));
  }
  const std::string version = absl::StrCat(v / 10000, ".", v / 100 % 100, ".", v % 100);
  fprintf(
      report->text(),
      "# NCCL %s: 2 ranks; microseconds of an operation, median and spread of %d starts of %lld "
      "rounds in turns;\n# ratios plugin / NCCL's socket transport, of time and of both processes' "
      "CPU\n"
      "#\n# operation       size      plugin    spread      socket    spread    time spread   "
      "  cpu spread\n",
      version.c_str(), kStarts, static_cast<long long>(rounds));
  for (size_t c = 0; c < std::size(kCells); ++c) {
    REWIRE_RETURN_IF_ERROR(
        Describe(version, kCells[c], all[c].first, all[c].second, worst, report));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureNccl(const NcclOptions& options, Report* report) {
  Worst worst;
  for (const std::string& folder : options.folders) {
    REWIRE_RETURN_IF_ERROR(MeasureBuild(folder, options.rounds, &worst, report));
  }
  report->Set("lat_ratio_vs_nccl_socket", worst.latency);
  report->Set("bw_ratio_vs_nccl_socket", worst.bandwidth);
  report->Set("cpu_ratio_vs_nccl_socket", worst.cpu);
  report->Set("wrong", worst.wrong);
  if (worst.wrong == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(worst.wrong, " elements of the results are wrong"));
}

}  // namespace rewire::bench
