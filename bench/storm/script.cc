#include "bench/storm/script.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace rewire::bench {
namespace {

constexpr size_t kMostCommunicators = 6;
constexpr uint64_t kStepsBetweenVotes = 25;
// Communicators are made and destroyed often at first and later less often: a rebuild needs some
// time with unchanged communicators.
constexpr uint64_t kFirstSteps = 40, kChangesAtFirst = 8, kChangesLater = 400;
constexpr size_t kCounts[] = {1, 3, 64, 1000, 4096, 20000};

}  // namespace

const char* NameOf(StepKind kind) {
  constexpr const char* kNames[] = {
      "all-reduce",     "maximum", "pre-multiplied sum", "broadcast", "reduce",      "all-gather",
      "reduce-scatter", "ring",    "all-to-all",         "pair",      "synchronize", "create",
      "split",          "shrink",  "finalize",           "destroy",   "abort",       "register",
      "deregister",     "window",  "window's end",       "vote"};
  return kNames[static_cast<size_t>(kind)];
}

Script::Script(uint64_t seed, int thread, int ranks, const Features& features)
    : random_(MixWord(seed, static_cast<uint64_t>(thread) + 1)),
      ranks_(ranks),
      features_(features) {
  Member all;
  for (int r = 0; r < ranks; ++r) all.ranks.push_back(r);
  members_[0] = all;
}

int Script::Choose() {
  auto place = members_.begin();
  std::advance(place, static_cast<int>(random_.Below(members_.size())));
  // An idle communicator is used one time in eight.
  if (place->second.idle && !random_.OneIn(8)) return 0;
  return place->first;
}

Member Script::AnyMember(std::vector<int> ranks) {
  Member member;
  member.ranks = std::move(ranks);
  member.nonblocking = random_.OneIn(3) && features_.nonblocking;
  member.idle = random_.OneIn(3) && features_.idle;
  return member;
}

void Script::MakeSubset(Step* step) {
  std::vector<int> ranks;
  for (int r = 0; r < ranks_; ++r) {
    if (!random_.OneIn(3)) ranks.push_back(r);
  }
  if (ranks.size() < 2) ranks = {0, ranks_ - 1};
  if (random_.OneIn(2)) std::reverse(ranks.begin(), ranks.end());
  step->made[next_communicator_++] = AnyMember(std::move(ranks));
}

void Script::MakeSplit(Step* step) {
  const Member parent = At(step->communicator);
  std::vector<int> colors[2];
  for (const int rank : parent.ranks) {
    const uint64_t color = random_.Below(5);  // 4: does not take part
    if (color < 4) colors[color % 2].push_back(rank);
  }
  for (std::vector<int>& ranks : colors) {
    if (!ranks.empty()) step->made[next_communicator_++] = AnyMember(std::move(ranks));
  }
}

void Script::MakeShrink(Step* step) {
  std::vector<int> ranks = At(step->communicator).ranks;
  ranks.erase(ranks.begin() + static_cast<int>(random_.Below(ranks.size())));
  step->made[next_communicator_++] = AnyMember(std::move(ranks));
}

Step Script::Change() {
  Step step;
  const bool full = members_.size() >= kMostCommunicators;
  if (!full && (members_.size() < 3 || random_.OneIn(2))) {
    step.communicator = Choose();
    if (random_.OneIn(2) && features_.split) {
      step.kind = StepKind::kSplit;
      MakeSplit(&step);
    } else if (random_.OneIn(3) && features_.shrink && At(step.communicator).ranks.size() > 1) {
      step.kind = StepKind::kShrink;
      MakeShrink(&step);
    } else {
      step.kind = StepKind::kCreate;
      MakeSubset(&step);
    }
    members_.insert(step.made.begin(), step.made.end());
    return step;
  }
  auto place = members_.begin();
  std::advance(place, 1 + static_cast<int>(random_.Below(members_.size() - 1)));
  step.communicator = gone_ = place->first;
  const uint64_t how = random_.Below(3);
  step.kind = how == 0   ? StepKind::kDestroy
              : how == 1 ? StepKind::kFinalizeAndDestroy
                         : (features_.abort ? StepKind::kAbort : StepKind::kDestroy);
  return step;
}

Step Script::Next(bool changes) {
  // A step that destroys a communicator still refers to it, so the next step removes it.
  if (gone_ != 0) members_.erase(std::exchange(gone_, 0));
  ++number_;
  Step step;
  if (number_ % kStepsBetweenVotes == 0) {
    step.kind = StepKind::kVote;
  } else if (random_.OneIn(number_ < kFirstSteps ? kChangesAtFirst : kChangesLater) && changes) {
    step = Change();
  } else if (random_.OneIn(5)) {
    step.kind = StepKind::kSynchronize;
  } else if (random_.OneIn(20) && features_.registrations) {
    step.communicator = Choose();
    step.kind = random_.OneIn(2) ? StepKind::kRegister : StepKind::kDeregister;
  } else if (random_.OneIn(20) && features_.windows) {
    step.communicator = Choose();
    step.kind = random_.OneIn(2) ? StepKind::kOpenWindow : StepKind::kCloseWindow;
  } else {
    step.communicator = Choose();
    step.second = Choose();
    step.kind = static_cast<StepKind>(random_.Below(10));
    step.count = kCounts[random_.Below(std::size(kCounts))];
    step.root = static_cast<int>(random_.Below(At(step.communicator).ranks.size()));
    const bool p2p = step.kind == StepKind::kRing || step.kind == StepKind::kAllToAll;
    const bool pair = step.kind == StepKind::kPair;
    if ((p2p && !features_.p2p) || (pair && !features_.groups)) step.kind = StepKind::kAllReduce;
    // NCCL refuses a group of blocking and non-blocking communicators.
    if (pair && At(step.communicator).nonblocking != At(step.second).nonblocking) {
      step.second = step.communicator;
    }
  }
  step.number = number_;
  return step;
}

}  // namespace rewire::bench
