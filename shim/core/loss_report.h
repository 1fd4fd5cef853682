// Decides whether the program may create a communicator after a loss. For ShimCommunicators.
//
// The shim cannot know which members a new communicator needs, because NCCL gives it a unique id
// alone. Two creations certainly fail, so they fail at once and do not wait for REWIRE_BUILD_MS:
// - a creation with more ranks than there are living members;
// - the first call of a program that no other call has told of the loss. Such a program cannot have
//   chosen the ranks without the lost member.
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>

#include "reconfig/base/mutex.h"
#include "shim/preload/core_abi.h"

namespace rewire::shim {

class LossReport {
 public:
  explicit LossReport(const ShimServices* services) : services_(services) {}

  // living: members that are left. Call before Begin().
  void SetLiving(uint32_t living) { living_.store(living, std::memory_order_release); }
  // A loss has made all communicators useless. The reason stays valid for Refuse() and Refused().
  void Begin(const std::string& reason) REWIRE_EXCLUDES(mutex_);
  // The program has new communicators.
  void End() REWIRE_EXCLUDES(mutex_);
  [[nodiscard]] bool Active() const { return active_.load(std::memory_order_seq_cst); }

  // Returns whether a creation must fail at once. several: this process may have several of the
  // communicator's ranks.
  [[nodiscard]] bool Refuse(uint32_t ranks, bool several) REWIRE_EXCLUDES(mutex_);
  // Returns why the last creation was refused since Begin(); nullptr: none was.
  [[nodiscard]] const char* Refused() const REWIRE_EXCLUDES(mutex_);

 private:
  const ShimServices* const services_;
  std::atomic<bool> active_{false};
  std::atomic<uint32_t> living_{UINT32_MAX};
  mutable Mutex mutex_;
  bool told_ REWIRE_GUARDED_BY(mutex_) = false;
  uint64_t reported_before_ REWIRE_GUARDED_BY(mutex_) = 0;
  const char* reason_ REWIRE_GUARDED_BY(mutex_) = nullptr;
  const char* refused_ REWIRE_GUARDED_BY(mutex_) = nullptr;
  std::set<std::string> reasons_ REWIRE_GUARDED_BY(mutex_);  // the pointers stay valid
};

}  // namespace rewire::shim
