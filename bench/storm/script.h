// What the ranks of a storm do, from a seed: every rank generates the same steps for a thread,
// whatever the results are. The script knows the communicators of all ranks by number. Pure;
// thread-compatible.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/sim/seeded_random.h"

namespace rewire::bench {

// Which parts of NCCL the steps use; all of them unless somebody looks for a cause.
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

// One communicator as the script knows it.
struct Member {
  std::vector<int> ranks;  // of the job, by rank in the communicator
  bool nonblocking = false;
  bool idle = false;  // is used seldom
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
  kVote  // how the storm goes on
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

  // The first communicator, of all ranks, is number 0 and exists before the first step.
  // Creates and destroys communicators only with `changes`, which is the same on all ranks.
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
