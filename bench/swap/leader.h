// The benchmark's leader. It starts the members as processes of this program and gathers their
// measurements. Under load, the members swap generations as with the agent's leader: mint, build,
// propose, pledge, decide, entered, retire. Owned by one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/swap/report_lines.h"
#include "bench/swap/wire.h"
#include "reconfig/elastic/leader/cut_rounds.h"

namespace rewire::bench {

struct LeaderOptions {
  uint32_t ranks = 2;
  uint64_t swaps = 334;
  uint64_t margin = 16;    // minimum distance from the furthest member to the warm index
  uint64_t distance = 8;   // from the warm index to the cut
  uint32_t baselines = 8;  // measured foreground changes of each kind
  uint64_t settle = 600;   // operations before the first swap
  uint64_t quiet = 160;    // undisturbed operations before every build
  bool share = false;      // members may share a GPU: each counts as a host of its own
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
  // Sends nothing to the members for `operations` operations, except counter queries at both ends.
  absl::Status KeepQuiet(uint64_t operations);
  absl::Status Swap(uint64_t epoch);
  absl::Status Agree(uint64_t epoch);
  absl::Status Gather();
  absl::Status Finish();

  absl::Status ShareUniqueId();
  absl::Status Meet();
  absl::Status SayToAll(const Packet& packet);
  absl::StatusOr<Packet> Hear(size_t member, Say say);
  // Returns the counter of the furthest member.
  absl::StatusOr<uint64_t> Furthest();

  const LeaderOptions options_;
  std::vector<int> fds_;
  std::vector<pid_t> pids_;
  Duration nap_ = milliseconds(10);  // for the next quiet stretch
  uint64_t furthest_ = 0;            // result of the last query
  elastic::Pace pace_;               // since the build began
  LeaderResult result_;
};

}  // namespace rewire::bench
