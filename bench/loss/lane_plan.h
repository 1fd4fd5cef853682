// The lanes of one job, drawn from a seed: every rank draws the same lanes. A lane is one thread on
// each of its ranks, with communicators of its own. Pure; thread-compatible.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace rewire::bench {

enum class LaneKind {
  kSteady,  // operations on one communicator
  kChurn,   // creates a communicator, uses it and destroys it, again and again
  kSplits,  // the same, with children of one communicator
  kIdle     // one communicator that is only polled
};
[[nodiscard]] const char* NameOf(LaneKind kind);

struct LanePlan {
  LaneKind kind = LaneKind::kSteady;
  int number = 0;
  std::vector<int> ranks;  // ranks of the job, by rank in the communicator
  bool blocking = true;
  bool queries = false;  // polls the stream instead of cuStreamSynchronize

  // Returns the rank in the lane's communicators; -1: not a rank of this lane.
  [[nodiscard]] int RankOf(int rank_of_job) const;
  [[nodiscard]] std::string Text() const;
};

// Returns lanes of at least two ranks each. The first lane is steady and has all ranks. `ranks`
// must be at least 2.
[[nodiscard]] std::vector<LanePlan> DrawLanes(uint64_t seed, int ranks);

}  // namespace rewire::bench
