// The memory of a device of the fake: the registered regions with a device's checks before each
// access, and the bytes that have arrived at a queue pair and are not yet in memory. Only the
// fabric uses them, under the fabric's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

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

// Bytes that have arrived at a queue pair. A device promises that they are visible when a receive
// of this queue pair completes, or when it answers a later READ. Before that, the bytes land in
// pieces, in any order.
class Landing {
 public:
  // Takes bytes of message number `message` for `to`, in the region with this lkey. `next` (a
  // random number at each call) cuts the bytes at multiples of `unit`. Returns the tickets to land,
  // in [first, end).
  std::pair<uint64_t, uint64_t> Add(char* to, std::string_view bytes, uint32_t lkey,
                                    uint64_t message, uint64_t unit,
                                    const std::function<uint64_t()>& next);
  // No effect if the piece has landed or was discarded.
  void Land(uint64_t ticket);
  void LandAll();
  // The queue pair or the region ends. Bytes of messages before `message` land now; for each piece
  // of `message`, `coin` decides whether it lands. `lkey` 0: every region.
  void End(uint64_t message, uint32_t lkey, const std::function<bool()>& coin);

 private:
  struct Piece {
    char* to;
    std::string bytes;
    uint32_t lkey;
    uint64_t message;
  };
  std::map<uint64_t, Piece> pieces_;  // key: ticket
  uint64_t tickets_ = 0;
};

}  // namespace rewire::rdma::fake
