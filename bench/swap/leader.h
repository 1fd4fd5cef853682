// The benchmark's leader: starts the members as processes of this program, lets them swap
// generations under load as the agent's leader does (mint, build, propose, pledge, decide, entered,
// retire), and gathers what they measured. One thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/swap/report_lines.h"
#include "bench/swap/wire.h"
#include "reconfig/transition/pace.h"

namespace rewire::bench {

struct LeaderOptions {
  uint32_t ranks = 2;
  uint64_t swaps = 334;
  uint64_t margin = 16;    // at least, between the furthest member and the warm index
  uint64_t distance = 8;   // from the warm index to the cut
  uint32_t baselines = 8;  // foreground changes measured of each kind
  uint64_t settle = 600;   // operations before the first swap
  uint64_t quiet = 160;    // and, undisturbed, before every build
  std::string libraries;   // folder of libcuda.so.1 and libnccl.so.2; empty: the machine's
};

struct LeaderResult {
  std::vector<MemberReport> members;
  uint64_t entered = 0;         // swaps that every member entered
  uint64_t refused_rounds = 0;  // proposals that some member refused
};

class Leader {
 public:
  explicit Leader(const LeaderOptions& options) : options_(options) {}
  ~Leader();
  Leader(const Leader&) = delete;
  Leader& operator=(const Leader&) = delete;

  absl::StatusOr<LeaderResult> Run();

 private:
  absl::Status Start();
  absl::Status Foreground();
  // Leaves the members alone for so many operations: between the last two questions nothing is
  // asked.
  absl::Status KeepQuiet(uint64_t operations);
  absl::Status Swap(uint64_t epoch);
  absl::Status Agree(uint64_t epoch);
  absl::Status Gather();
  absl::Status Finish();

  absl::Status ShareUniqueId();
  absl::Status Meet();
  absl::Status SayToAll(const Packet& packet);
  absl::StatusOr<Packet> Hear(size_t member, Say say);
  // The furthest member's counter.
  absl::StatusOr<uint64_t> Furthest();

  const LeaderOptions options_;
  std::vector<int> fds_;
  std::vector<pid_t> pids_;
  Duration nap_ = milliseconds(10);  // for the next quiet stretch
  uint64_t furthest_ = 0;            // as it was last asked for
  Pace pace_;                        // since the build began
  LeaderResult result_;
};

}  // namespace rewire::bench
