#include "shim/core/memory_ledger.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::shim {

void MemoryLedger::Record(const CommunicatorId& communicator, Maker maker, uint64_t free_before,
                          uint64_t free_after) {
  MutexLock lock(&mutex_);
  taken_[communicator] = {maker, free_before > free_after ? free_before - free_after : 0};
}

void MemoryLedger::Forget(const CommunicatorId& communicator) {
  MutexLock lock(&mutex_);
  taken_.erase(communicator);
}

uint64_t MemoryLedger::Expected(std::span<const CommunicatorId> communicators) const {
  MutexLock lock(&mutex_);
  uint64_t largest = 0;
  for (const auto& [id, taken] : taken_) {
    if (taken.maker == Maker::kBuilder) largest = std::max(largest, taken.bytes);
  }
  uint64_t sum = 0;
  for (const CommunicatorId& id : communicators) {
    const auto it = taken_.find(id);
    if (it != taken_.end()) {
      sum += it->second.bytes;
    } else if (&id == communicators.data()) {
      sum += largest;
    }
  }
  return sum;
}

absl::Status MemoryLedger::Check(std::span<const CommunicatorId> communicators,
                                 uint64_t free_bytes) const {
  const uint64_t needed = Expected(communicators);
  if (needed <= free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("build generations of ", communicators.size(),
                   " communicators: device memory: bytes=", needed, ": must be at most the ",
                   free_bytes, " free bytes (estimated from the present generations)"));
}

}  // namespace rewire::shim
