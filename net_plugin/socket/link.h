// The TCP connections from one process to another that carry one direction of traffic. A link
// outlives the connection of NCCL's that uses it: it is used again by the next between the same two
// processes (Links). Of whoever holds it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "net_plugin/socket/stream.h"

namespace rewire::net {

// What a transport keeps with a link from one use to the next.
class Attachment {
 public:
  virtual ~Attachment() = default;
};

struct Link {
  uint64_t id = 0;
  uint64_t peer = 0;    // the other process's incarnation
  uint64_t rail = 0;    // which of our and of the peer's devices: equal for links that may serve
                        // each other's purpose
  uint32_t use = 1;     // from 1, one more each time it is used again
  bool closed = false;  // its sender is through with this use
  bool rested = false;  // where the sender is: the peer's end of this use rests
  std::vector<Stream> streams;
  std::unique_ptr<Attachment> attachment;
};

enum class Rest { kGone, kPeerNotYet, kBoth };

// Whether the peer's end of a link whose sender is here rests, too: it says so (frame.h).
[[nodiscard]] Rest RestOf(Link* link);

}  // namespace rewire::net
