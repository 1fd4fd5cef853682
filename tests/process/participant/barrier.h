// Counters in a shared file, which replace the collectives of a real job: no member passes step n
// before every member has reached it. For the programs of these tests.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "rewire/rewire.h"

namespace rewire {

struct Barrier {
  static constexpr uint64_t kMembers = 64;
  std::atomic<uint64_t> stop_at;            // 0: not yet
  std::atomic<uint64_t> forward[kMembers];  // steps whose gradients are ready, by slot
  std::atomic<uint64_t> updated[kMembers];  // steps whose update is done

  // Returns nullptr when the file cannot be mapped.
  static Barrier* In(const char* file) {
    const int fd = open(file, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, sizeof(Barrier)) != 0) return nullptr;
    void* const memory = mmap(nullptr, sizeof(Barrier), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<Barrier*>(memory);
  }
};

// Waits until all members of the world have reached `n`; false after `most` tries.
inline bool Wait(const rewireWorld_t& world, std::atomic<uint64_t>* counters, uint64_t n,
                 int most) {
  // A member that counts as lost and does not know it must not lower the counter of the slot's new
  // owner.
  std::atomic<uint64_t>& own = counters[world.slot];
  const uint64_t reached = world.epoch << 32 | n;
  for (uint64_t now = own.load(); now < reached && !own.compare_exchange_weak(now, reached);) {
  }
  for (int tries = 0; tries < most; ++tries) {
    bool all = true;
    for (uint32_t s = 0; s < world.slots; ++s) {
      all = all && counters[s].load() >= (world.epoch << 32 | n);
    }
    if (all) return true;
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace rewire
