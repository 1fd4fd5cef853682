#include "shim/core/memory_ledger.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::shim {

namespace {

uint64_t Fall(uint64_t free_before, uint64_t free_after) {
  return free_before > free_after ? free_before - free_after : 0;
}

}  // namespace

void MemoryLedger::RecordBuilt(const OnDevice& communicator, uint64_t free_before,
                               uint64_t free_after) {
  MutexLock lock(&mutex_);
  Taken& taken = taken_[communicator];
  taken.built = true;
  taken.made = Fall(free_before, free_after);
}

void MemoryLedger::AddTaken(const OnDevice& communicator, uint64_t free_before,
                            uint64_t free_after) {
  MutexLock lock(&mutex_);
  taken_[communicator].made += Fall(free_before, free_after);
}

void MemoryLedger::RecordDestroyed(const OnDevice& communicator, uint64_t free_before,
                                   uint64_t free_after) {
  MutexLock lock(&mutex_);
  const auto it = taken_.find(communicator);
  if (it == taken_.end()) return;
  uint64_t* const destroyed = it->second.destroyed;
  destroyed[1] = std::exchange(destroyed[0], Fall(free_after, free_before));
}

void MemoryLedger::Forget(const OnDevice& communicator) {
  MutexLock lock(&mutex_);
  taken_.erase(communicator);
}

uint64_t MemoryLedger::Expected(std::span<const OnDevice> communicators) const {
  MutexLock lock(&mutex_);
  uint64_t largest = 0;
  for (const auto& [id, taken] : taken_) {
    if (taken.built) largest = std::max(largest, taken.Bytes());
  }
  uint64_t sum = 0;
  for (const OnDevice& id : communicators) {
    const auto it = taken_.find(id);
    if (it != taken_.end()) {
      sum += it->second.Bytes();
    } else if (&id == communicators.data()) {
      sum += largest;
    }
  }
  return sum;
}

absl::Status MemoryLedger::Check(std::span<const OnDevice> communicators, uint64_t free_bytes) {
  const uint64_t needed = Expected(communicators);
  if (needed <= free_bytes) return absl::OkStatus();
  {
    MutexLock lock(&mutex_);
    for (const OnDevice& id : communicators) {
      const auto it = taken_.find(id);
      if (it == taken_.end()) continue;
      std::fill_n(it->second.destroyed, 2, 0);
      if (!it->second.built) it->second.made = 0;
    }
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("build generations of ", communicators.size(),
                   " communicators: device memory: bytes=", needed, ": must be at most the ",
                   free_bytes, " free bytes (estimated from the present generations)"));
}

}  // namespace rewire::shim
