// The TCP connections from one process to another that carry one direction of traffic. A link
// outlives the connection of NCCL's that uses it: it is used again by the next between the same two
// processes (Links). Of whoever holds it.
#pragma once

#include <cstdint>
#include <vector>

#include "net_plugin/socket/stream.h"

namespace rewire::net {

struct Link {
  uint64_t id = 0;
  uint64_t peer = 0;    // the other process's incarnation
  uint64_t rail = 0;    // which of our and of the peer's interfaces: equal for links that may serve
                        // each other's purpose
  uint32_t use = 1;     // from 1, one more each time it is used again
  bool closed = false;  // its sender is through with this use
  std::vector<Stream> streams;
};

enum class Rest { kGone, kPeerNotYet, kBoth };

// Whether the peer's end of a link whose sender is here rests, too: it says so (hello.h).
[[nodiscard]] Rest RestOf(const Link& link);

}  // namespace rewire::net
