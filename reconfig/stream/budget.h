// Credits for state bytes in flight: taken before bytes are read out of the state, given back when
// the receiver has placed them. What is out never exceeds the limit, nor does the peak. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reconfig/base/mutex.h"

namespace rewire {

class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}

  // False when there was no room before the deadline, and for more than the limit.
  bool Take(uint64_t bytes, Time deadline);
  void Give(uint64_t bytes);

  [[nodiscard]] uint64_t limit() const { return limit_; }
  [[nodiscard]] uint64_t in_flight() const;
  [[nodiscard]] uint64_t peak() const;

 private:
  const uint64_t limit_;
  mutable Mutex mutex_;
  CondVar changed_;
  uint64_t out_ REWIRE_GUARDED_BY(mutex_) = 0;
  uint64_t peak_ REWIRE_GUARDED_BY(mutex_) = 0;
};

}  // namespace rewire
