// Inputs from other threads for the member's thread. Callbacks that may come late share the inbox,
// so that it outlives the participant. After Close() inputs are dropped. Thread-safe.
#pragma once

#include <sys/eventfd.h>

#include <functional>
#include <utility>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/elastic/member/member.h"

namespace rewire::elastic {

class Inbox {
 public:
  using Input = std::function<void(Member* member, Time now, Member::Out* out)>;

  void Post(Input input) {
    {
      MutexLock lock(&mutex_);
      if (closed_) return;
      inputs_.push_back(std::move(input));
    }
    Wake();
  }
  [[nodiscard]] std::vector<Input> TakeAll() {
    MutexLock lock(&mutex_);
    return std::exchange(inputs_, {});
  }
  void Close() {
    MutexLock lock(&mutex_);
    closed_ = true;
    inputs_.clear();
  }
  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = write(event_.get(), &one, sizeof one);
  }
  void TakeWake() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t n = read(event_.get(), &count, sizeof count);
  }
  [[nodiscard]] int fd() const { return event_.get(); }

 private:
  const UniqueFd event_{eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  Mutex mutex_;
  bool closed_ REWIRE_GUARDED_BY(mutex_) = false;
  std::vector<Input> inputs_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::elastic
