// Ends every wait of one communicator: a flag for threads that spin, a descriptor for threads that
// poll. Thread-safe. The Abort of a communicator under construction is a child of its parent's:
// aborting the parent also ends the construction.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/base/unique_fd.h"

namespace simnccl {

class Abort {
 public:
  Abort() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  [[nodiscard]] bool IsSet() const { return set_.load(std::memory_order_acquire); }
  [[nodiscard]] int fd() const { return fd_.get(); }

  void Set() {
    set_.store(true, std::memory_order_release);
    const uint64_t one = 1;
    (void)!::write(fd_.get(), &one, sizeof(one));
    rewire::MutexLock lock(&mutex_);
    for (const std::weak_ptr<Abort>& child : children_) {
      if (const std::shared_ptr<Abort> live = child.lock()) live->Set();
    }
  }

  // Called after a revocation or an abortive shrink: the communicator may be used again for
  // management calls.
  void Clear() {
    uint64_t count;
    (void)!::read(fd_.get(), &count, sizeof(count));
    set_.store(false, std::memory_order_release);
  }

  void AddChild(const std::shared_ptr<Abort>& child) {
    rewire::MutexLock lock(&mutex_);
    children_.push_back(child);
    if (IsSet()) child->Set();
  }
  void DropChildren() {
    rewire::MutexLock lock(&mutex_);
    children_.clear();
  }

 private:
  std::atomic<bool> set_{false};
  rewire::UniqueFd fd_;
  rewire::Mutex mutex_;
  std::vector<std::weak_ptr<Abort>> children_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace simnccl
