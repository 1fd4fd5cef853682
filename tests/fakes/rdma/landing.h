// Bytes that have arrived at a queue pair and are not yet in memory. A device promises that they
// are there when a receive of this queue pair completes, or when it answers a later READ of it, and
// nothing before that: here they land in pieces, in any order. Of the fabric alone, under its lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace rewire::rdma::fake {

class Landing {
 public:
  // Takes bytes of message number `message` for `to`, of the region with this lkey, cut by `next`
  // (a random number at each call) at multiples of `unit`. Says the tickets to land, in [first,
  // end).
  std::pair<uint64_t, uint64_t> Add(char* to, std::string_view bytes, uint32_t lkey,
                                    uint64_t message, uint64_t unit,
                                    const std::function<uint64_t()>& next);
  // No effect when it has landed, or never will.
  void Land(uint64_t ticket);
  void LandAll();
  // The queue pair, or the region, ends: bytes of messages before `message` land now; those of that
  // one land or not, as `coin` says for each piece. `lkey` 0: of every region.
  void End(uint64_t message, uint32_t lkey, const std::function<bool()>& coin);

 private:
  struct Piece {
    char* to;
    std::string bytes;
    uint32_t lkey;
    uint64_t message;
  };
  std::map<uint64_t, Piece> pieces_;  // by ticket
  uint64_t tickets_ = 0;
};

}  // namespace rewire::rdma::fake
