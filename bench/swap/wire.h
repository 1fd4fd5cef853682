// Messages between the benchmark's leader and its members, over one packet socket per member. Every
// wait has a deadline. Each end is owned by one thread.
#pragma once

#include <cstdint>
#include <string>

#include "reconfig/base/clock.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::bench {

enum class Say : uint32_t {
  kUniqueId,  // both ways: bytes is the id
  kReady,     // member: has reached the point where the leader waits for all
  kGo,        // leader: all members are ready
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
  kFailed,  // bytes: the reason
};

struct Packet {
  Say say = Say::kReady;
  uint64_t a = 0;
  uint64_t b = 0;
  uint64_t c = 0;
  std::string bytes;
};

// Returns false if the other end is gone or the deadline passed.
bool SendPacket(int fd, const Packet& packet);
bool ReceivePacket(int fd, Packet* packet, Time deadline);

}  // namespace rewire::bench
