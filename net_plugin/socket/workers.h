// Threads that move bytes over the further streams of links, so that one connection of NCCL's uses
// more than one processor; the first stream is moved by NCCL's own thread. One object per process,
// made at its first use; its threads sleep while there is nothing to move and live as long as the
// process.
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
    // On a worker: moves what can be moved now. Never two at once for one stream.
    virtual void Drive(size_t stream) = 0;
  };

  // What one Drive() moves at most, so that nobody is kept waiting for another's large messages.
  static constexpr size_t kTurnBytes = 4 << 20;

  static Workers& Get();
  // For Get() and tests. patience: for a Drive() that Remove() waits for, between two turns of a
  // worker's thread on a processor; after it the process ends.
  explicit Workers(Duration patience = seconds(60));
  // False: this process could not have them; links must have one stream only.
  [[nodiscard]] bool ok() const { return events_.valid(); }

  // events: of epoll(7), that the descriptor is waited for.
  uint64_t Add(int fd, uint32_t events, Work* work, size_t stream);
  // Drive() is called once, as soon as the descriptor is ready, or `now`. From any thread, Drive()
  // too.
  void Arm(uint64_t id, bool now = false);
  // When it returns Drive() is not under way and will not be called any more.
  void Remove(uint64_t id);

 private:
  struct Entry {
    int fd;
    uint32_t events;
    Work* work;
    size_t stream;
    bool driving = false;
    bool again = false;  // meanwhile it became ready, or was armed to be driven at once
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
