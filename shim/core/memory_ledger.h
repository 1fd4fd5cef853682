// Records how much device memory each communicator's generations took, and checks whether the next
// generations fit beside them. For ShimCommunicators, EpochBuild and Retirement. Thread-safe.
//
// An epoch that changes several communicators needs the sum of their generations at once. The
// change is refused before it begins if the measured generations do not fit, and during the build
// if the next generation does not fit. A measurement is the fall of free memory while one
// generation was made, or the rise while one was destroyed. The program's first operations of each
// kind connect ranks, and the memory of these connections is added. NCCL connects a non-blocking
// communicator on a thread of its own, so only the rise includes that memory. Other allocations of
// the program at that moment are included, so newer measurements replace older ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "reconfig/base/mutex.h"
#include "reconfig/world/world.h"
#include "shim/core/device.h"

namespace rewire::shim {

// A communicator's ranks on one device of this process.
struct OnDevice {
  // NOLINTNEXTLINE(google-explicit-constructor): a process usually has one device
  OnDevice(const CommunicatorId& id, DeviceContext device = nullptr)
      : communicator(id), context(device) {}
  CommunicatorId communicator;  // Chain::first_id: measurements outlast a change of identity
  DeviceContext context;
  auto operator<=>(const OnDevice&) const = default;
};

// The numbers of builds and destructions that have begun and ended.
struct MemoryTurns {
  std::atomic<uint64_t> ended{0};
  std::atomic<uint64_t> begun{0};
  // Returns whether no build and no destruction is under way, and none has begun after the number
  // `last`.
  [[nodiscard]] bool None(uint64_t last) const {
    return ended.load() == begun.load() && begun.load() == last;
  }
};

// One build or destruction, as long as the object exists. Knows whether it ran alone: a build that
// was given up may still allocate beside the next one, and then the free memory says nothing about
// either.
class MemoryTurn {
 public:
  explicit MemoryTurn(std::shared_ptr<MemoryTurns> turns)
      : turns_(std::move(turns)), ended_(turns_->ended.load()), begun_(++turns_->begun) {}
  ~MemoryTurn() { ++turns_->ended; }
  MemoryTurn(const MemoryTurn&) = delete;
  MemoryTurn& operator=(const MemoryTurn&) = delete;
  // Returns whether no other turn was under way at the same time so far.
  [[nodiscard]] bool Alone() const {
    return ended_ + 1 == begun_ && turns_->begun.load() == begun_;
  }

 private:
  // A thread that was left inside NCCL may return when the builder no longer exists.
  const std::shared_ptr<MemoryTurns> turns_;
  const uint64_t ended_;
  const uint64_t begun_;
};

class MemoryLedger {
 public:
  // Records the fall of free memory while the core made (and warmed) one generation.
  void RecordBuilt(const OnDevice& communicator, uint64_t free_before, uint64_t free_after)
      REWIRE_EXCLUDES(mutex_);
  // Adds the fall of free memory during a call of the program: a creation, or the first operation
  // of a kind.
  void AddTaken(const OnDevice& communicator, uint64_t free_before, uint64_t free_after)
      REWIRE_EXCLUDES(mutex_);
  // Records the rise of free memory while one generation was destroyed. Ignored for a communicator
  // without a measurement, which the program has closed.
  void RecordDestroyed(const OnDevice& communicator, uint64_t free_before, uint64_t free_after)
      REWIRE_EXCLUDES(mutex_);
  void Forget(const OnDevice& communicator) REWIRE_EXCLUDES(mutex_);

  // Returns the bytes that one more generation of each communicator will take. This is the largest
  // measurement of the newest build and the last two destructions: a generation may be destroyed
  // before it has connected everything. The communicators are those of one device, in the order of
  // building. A communicator without a measurement counts only if it is the first, with the largest
  // measurement of a build: the program's first communicator includes memory that NCCL takes once
  // per process. The program may allocate during a build, and no single measurement says much about
  // many others. Call again before each build.
  [[nodiscard]] uint64_t Expected(std::span<const OnDevice> communicators) const
      REWIRE_EXCLUDES(mutex_);
  // Returns kResourceExhausted, with figures, if the generations do not fit into `free_bytes`. The
  // measurements of destructions and of the program's calls are then forgotten: the program may
  // have freed or allocated memory meanwhile, and without a new generation no newer measurement
  // would come.
  [[nodiscard]] absl::Status Check(std::span<const OnDevice> communicators, uint64_t free_bytes)
      REWIRE_EXCLUDES(mutex_);

  // The turns of everything of Rewire's that changes the free memory.
  [[nodiscard]] const std::shared_ptr<MemoryTurns>& turns() const { return turns_; }

 private:
  struct Taken {
    bool built = false;  // `made` is of a build of the core
    uint64_t made = 0;
    uint64_t destroyed[2] = {0, 0};  // newest first
    [[nodiscard]] uint64_t Bytes() const { return std::max({made, destroyed[0], destroyed[1]}); }
  };

  const std::shared_ptr<MemoryTurns> turns_ = std::make_shared<MemoryTurns>();
  mutable Mutex mutex_;
  std::map<OnDevice, Taken> taken_ REWIRE_GUARDED_BY(mutex_);
};

}  // namespace rewire::shim
