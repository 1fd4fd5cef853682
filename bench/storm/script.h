// The steps of a storm's ranks, generated from a seed: every rank generates the same steps for a
// thread, independent of the results. The script knows the communicators of all ranks by number.
// Pure; thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/seeded_random.h"

namespace rewire::bench {

// The parts of NCCL that the steps use; all of them, except to isolate a cause.
struct Features {
  bool split = true;
  bool shrink = true;
  bool groups = true;
  bool p2p = true;
  bool nonblocking = true;
  bool registrations = true;
  bool windows = true;
  bool idle = true;
  bool abort = true;
};

// One communicator in the script's bookkeeping.
struct Member {
  std::vector<int> ranks;  // ranks of the job, by rank in the communicator
  bool nonblocking = false;
  bool idle = false;  // used seldom
};

enum class StepKind {
  kAllReduce,
  kMaximum,
  kPreMulSum,
  kBroadcast,
  kReduce,
  kAllGather,
  kReduceScatter,
  kRing,      // a send and a receive in one group
  kAllToAll,  // sends and receives of all pairs in one group
  kPair,      // several collectives of two communicators in one group
  kSynchronize,
  kCreate,
  kSplit,
  kShrink,
  kFinalizeAndDestroy,
  kDestroy,
  kAbort,
  kRegister,
  kDeregister,
  kOpenWindow,
  kCloseWindow,
  kVote  // decides how the storm continues
};
[[nodiscard]] const char* NameOf(StepKind kind);

struct Step {
  StepKind kind = StepKind::kVote;
  uint64_t number = 0;
  int communicator = 0;
  int second = 0;    // kPair: the other communicator
  size_t count = 1;  // elements of each rank
  int root = 0;
  // kCreate, kSplit and kShrink: the new communicators, by number.
  std::map<int, Member> made;
};

class Script {
 public:
  Script(uint64_t seed, int thread, int ranks, const Features& features);

  // The first communicator, of all ranks, is number 0 and exists before the first step. The script
  // creates and destroys communicators only with `changes`, which is the same on all ranks.
  [[nodiscard]] Step Next(bool changes);
  [[nodiscard]] const Member& At(int communicator) const { return members_.at(communicator); }

 private:
  [[nodiscard]] Step Change();
  void MakeSubset(Step* step);
  void MakeSplit(Step* step);
  void MakeShrink(Step* step);
  [[nodiscard]] int Choose();
  [[nodiscard]] Member AnyMember(std::vector<int> ranks);

  sim::SeededRandom random_;
  const int ranks_;
  const Features features_;
  std::map<int, Member> members_;
  int next_communicator_ = 1;
  int gone_ = 0;  // the communicator that the last step destroyed; 0: none
  uint64_t number_ = 0;
};

}  // namespace rewire::bench
