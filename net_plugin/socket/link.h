// The TCP connections from one process to another that carry one direction of traffic. A link
// outlives the NCCL connection that uses it: the next NCCL connection between the same two
// processes reuses the link (Links). Thread-compatible: owned by the link's holder.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "net_plugin/socket/stream.h"

namespace rewire::net {

// State that a transport keeps with a link from one use to the next.
class Attachment {
 public:
  virtual ~Attachment() = default;
};

struct Link {
  uint64_t id = 0;
  uint64_t peer = 0;           // the other process's incarnation
  uint64_t rail = 0;           // the local and the peer's device; equal for interchangeable links
  uint32_t use = 1;            // number of this use, from 1
  bool closed = false;         // its sender has finished this use
  bool peer_finished = false;  // on the sending side: the peer has finished this use
  std::vector<Stream> streams;
  std::unique_ptr<Attachment> attachment;
};

enum class UseEnd { kGone, kPeerNotYet, kBoth };

// Tells whether the peer has also finished this use of a local sender's link (kFinished, frame.h).
[[nodiscard]] UseEnd EndOfUse(Link* link);

}  // namespace rewire::net
