#include "reconfig/moe/exec/balancer_counts.h"

#include "reconfig/base/counters.h"

namespace rewire::moe {

CountsPart::~CountsPart() {
  BalancerCounts gone = last_;
  gone.copies = 0;
  Set(gone);
}

void CountsPart::Set(const BalancerCounts& now) {
  Count(Counter::kMoeRounds, now.rounds - last_.rounds);
  Count(Counter::kMoeMoves, now.given - last_.given);
  Count(Counter::kMoeCopiedBytes, now.copied_bytes - last_.copied_bytes);
  Count(Counter::kMoeLateRounds, now.late_rounds - last_.late_rounds);
  Count(Counter::kMoeBudget, uint64_t{now.copies} - last_.copies);
  if (now.off != last_.off) {
    if (now.off == Off::kLate) Count(Counter::kMoeOffLate);
    if (now.off == Off::kCopies) Count(Counter::kMoeOffCopies);
    if (now.off == Off::kBroken) Count(Counter::kMoeOffBroken);
  }
  last_ = now;
}

}  // namespace rewire::moe
