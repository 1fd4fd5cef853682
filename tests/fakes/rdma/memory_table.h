// The memory registered with one device of the fake, and a device's checks before each access. Only
// the fabric uses it, under the fabric's lock.
#pragma once

#include <cstdint>
#include <map>

#include "reconfig/rdma/queue_pair.h"

namespace rewire::rdma::fake {

struct Region {
  uint32_t domain = 0;  // number of the protection domain
  uint64_t base = 0;    // address that remote sides use
  uint64_t bytes = 0;
  char* host = nullptr;  // real address
  Access access;
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

enum class Touch : uint8_t { kLocalRead, kLocalWrite, kRemoteRead, kRemoteWrite };

class MemoryTable {
 public:
  // Adds a region. Both its keys are different from each other and from every other region's keys,
  // past or present.
  Region& Add(const Region& region, uint64_t random);
  [[nodiscard]] static uint32_t LocalKey(uint32_t rkey) { return rkey & ~kRemote; }
  void Remove(uint32_t lkey) { regions_.erase(lkey); }
  // Returns the address of the bytes; null if the key, the domain, the bounds or the access is
  // wrong.
  [[nodiscard]] char* Find(uint32_t key, uint32_t domain, uint64_t address, uint64_t bytes,
                           Touch touch) const;

 private:
  static constexpr uint32_t kRemote = 1U << 31;
  std::map<uint32_t, Region> regions_;  // key: lkey; the rkey is the lkey with kRemote
  uint32_t added_ = 0;
};

}  // namespace rewire::rdma::fake
