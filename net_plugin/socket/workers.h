// Threads that move bytes over the further streams of links, so that one NCCL connection uses more
// than one processor; NCCL's own thread moves the first stream. The process has one object, created
// at its first use. The threads sleep while idle and run until the process ends. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <thread>
#include <vector>

#include "reconfig/base/clock.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

class Workers {
 public:
  class Work {
   public:
    virtual ~Work() = default;
    // Moves the available data, on a worker thread. Calls for one stream never overlap.
    virtual void Drive(size_t stream) = 0;
  };

  // Limit for one Drive() call, so that large messages of one link do not delay the other links.
  static constexpr size_t kTurnBytes = 4 << 20;

  static Workers& Get();
  // For Get() and tests. patience: how long Remove() waits for a Drive() call, counted in time that
  // the process runs; after that time the process ends.
  explicit Workers(Duration patience = seconds(60));
  // False: the process could not create the workers; links must then have one stream only.
  [[nodiscard]] bool ok() const { return events_.valid(); }

  // events: the epoll(7) events to wait for on the descriptor.
  uint64_t Add(int fd, uint32_t events, Work* work, size_t stream);
  // Schedules one call of Drive(), as soon as the descriptor is ready, or immediately with `now`.
  // Thread-safe; Drive() itself may also call Arm().
  void Arm(uint64_t id, bool now = false);
  // After Remove() returns, Drive() is not running and is not called again.
  void Remove(uint64_t id);

 private:
  struct Entry {
    int fd;
    uint32_t events;
    Work* work;
    size_t stream;
    bool driving = false;
    bool again = false;  // became ready, or was armed with `now`, while driving
  };

  void Run(size_t number);
  void ArmEntry(uint64_t id, const Entry& entry, bool now) REWIRE_REQUIRES(mutex_);

  const Duration patience_;
  UniqueFd events_;
  Mutex mutex_;
  CondVar idle_;
  std::map<uint64_t, Entry> entries_ REWIRE_GUARDED_BY(mutex_);
  uint64_t last_ REWIRE_GUARDED_BY(mutex_) = 0;
  std::vector<std::thread> threads_;
};

}  // namespace rewire::net
