// What the benchmark's leader and its members say to each other, over one packet socket per member.
// Every wait has a deadline. One thread per end.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::bench {

enum class Say : uint32_t {
  kUniqueId,  // both ways: bytes is the id
  kReady,     // member: stands where the leader waits for all
  kGo,        // leader: all do
  kMint,
  kBuild,    // epoch a, bytes: unique id and usage
  kQuery,    // answered by kCounter
  kCounter,  // a: operations issued
  kPropose,  // epoch a, warm index b, cut c
  kPledged,  // a: 1 or 0
  kDecide,   // epoch a, go b
  kEntered,  // a: host waits
  kRetire,   // epoch a
  kRetired,
  kStop,    // member 0: end the loop at the next operation
  kResult,  // bytes: part of the member's report; a: 1 for the last part
  kFailed,  // bytes: why
};

struct Packet {
  Say say = Say::kReady;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  std::string bytes;
};

// False: the other end is gone, or the deadline passed.
bool SendPacket(int fd, const Packet& packet);
bool ReceivePacket(int fd, Packet* packet, Time deadline);

}  // namespace rewire::bench
