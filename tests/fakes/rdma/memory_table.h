// The memory registered with one device of the fake, and the checks a device makes before it
// touches it. Of the fabric alone, under its lock.
#pragma once

#include <cstdint>
#include <map>

#include "reconfig/rdma/queue_pair.h"

namespace rewire::rdma::fake {

struct Region {
  uint32_t domain = 0;  // of the protection domain
  uint64_t base = 0;    // as remote sides address it
  uint64_t bytes = 0;
  char* host = nullptr;  // where it really is
  Access access;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

enum class Touch : uint8_t { kLocalRead, kLocalWrite, kRemoteRead, kRemoteWrite };

class MemoryTable {
 public:
  // The keys are two different numbers that no other region has or had.
  Region& Add(const Region& region, uint64_t random);
  [[nodiscard]] static uint32_t LocalKey(uint32_t rkey) { return rkey & ~kRemote; }
  void Remove(uint32_t lkey) { regions_.erase(lkey); }
  // Where the bytes are; null when the key, the domain, the bounds or the access is wrong.
  [[nodiscard]] char* Find(uint32_t key, uint32_t domain, uint64_t address, uint64_t bytes,
                           Touch touch) const;

 private:
  static constexpr uint32_t kRemote = 1U << 31;
  std::map<uint32_t, Region> regions_;  // by lkey; the rkey is the lkey with kRemote
  uint32_t added_ = 0;
};

}  // namespace rewire::rdma::fake
