// Takes and returns credits; see budget.h.
#include "reconfig/state/stream/budget.h"

#include "reconfig/base/counters.h"

namespace rewire::state {

bool Budget::Take(uint64_t bytes, Time deadline) {
  if (bytes > limit_) return false;
  MutexLock lock(&mutex_);
  while (out_ + bytes > limit_) {
    if (!changed_.WaitUntil(&mutex_, deadline) && out_ + bytes > limit_) return false;
  }
  out_ += bytes;
  peak_ = std::max(peak_, out_);
  Count(Counter::kBudgetInFlight, bytes);
  RaiseCounter(Counter::kBudgetPeak, peak_);
  return true;
}

void Budget::Give(uint64_t bytes) {
  {
    MutexLock lock(&mutex_);
    const uint64_t given = std::min(bytes, out_);
    out_ -= given;
    Count(Counter::kBudgetInFlight, -given);
  }
  changed_.NotifyAll();
}

uint64_t Budget::in_flight() const {
  MutexLock lock(&mutex_);
  return out_;
}

uint64_t Budget::peak() const {
  MutexLock lock(&mutex_);
  return peak_;
}

}  // namespace rewire::state
