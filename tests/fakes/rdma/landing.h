// Bytes that have arrived at a queue pair and are not yet in memory. A device promises that they
// are visible when a receive of this queue pair completes, or when it answers a later READ. Before
// that, the bytes land in pieces, in any order. Only the fabric uses it, under the fabric's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace rewire::rdma::fake {

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
