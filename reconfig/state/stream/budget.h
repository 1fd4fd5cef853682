// Credits for state bytes in flight. A sender takes credits before reading bytes out of the state
// and returns them when the receiver has placed the bytes. Neither the credits in use nor their
// peak ever exceed the limit. Thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>

#include "reconfig/base/mutex.h"

namespace rewire::state {

class Budget {
 public:
  explicit Budget(uint64_t limit) : limit_(limit) {}

  // Returns false without room before the deadline, and at once for more than the limit.
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

}  // namespace rewire::state
