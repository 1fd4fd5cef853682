// A link: the TCP connections from one process to another that carry one direction of traffic. A
// link outlives the NCCL connection that uses it: IdleLinks keeps the link until the next NCCL
// connection between the same two processes reuses it. Thread-compatible: a link is owned by its
// holder, and Links calls IdleLinks under the mutex of Links. No call blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "net_plugin/socket/stream.h"
#include "net_plugin/socket/wire_format.h"
#include "reconfig/base/unique_fd.h"

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

class IdleLinks {
 public:
  // The link key of a listener; nullopt: this process has no such listener.
  using KeyOf = std::function<std::optional<Key>(uint64_t listener)>;
  // Takes a link that its sender has opened again for this listener. Called inside Pump() and
  // KeepReceiving(), and must not call IdleLinks.
  using Opened = std::function<void(uint64_t listener, std::unique_ptr<Link>)>;

  // most: limit on the descriptors of idle links, for each direction, as if all links had as many
  // streams as the link that is kept.
  IdleLinks(size_t most, KeyOf key_of, Opened opened);

  // Keeps a sending link, whose close frame the caller has written, for reuse. At the limit, drops
  // the idle sending link that was kept first.
  void KeepSending(std::unique_ptr<Link> link);
  // Keeps a receiving link, of which the caller has taken every message, and writes the finished
  // frame, after which the peer may use the link again. Drops the link at the limit, and where the
  // kernel refuses the watch or the write.
  void KeepReceiving(std::unique_ptr<Link> link);
  // Returns a sending link whose peer has also finished its last use; null: there is none.
  std::unique_ptr<Link> TakeSending(uint64_t peer, uint64_t rail, size_t streams);

  // Reads the frames that arrived on receiving links.
  void Pump();
  // Drops the sending links that their peers have ended.
  void DropEnded();
  // Drops all links, to free their descriptors.
  void Clear();

 private:
  // Reads the frames that arrived on a receiving link. False: the link was opened again and passed
  // on (`*link` is then null), or the link cannot be used again.
  bool Wake(std::unique_ptr<Link>* link);
  // Returns false if the kernel refuses the watch.
  [[nodiscard]] bool Watch(int fd);
  // Must precede the close of a descriptor: a forked child may also have the descriptor.
  void Unwatch(int fd);

  const size_t most_;
  const KeyOf key_of_;
  const Opened opened_;
  UniqueFd events_;                                 // an epoll of the receiving links
  std::map<int, std::unique_ptr<Link>> receiving_;  // by descriptor
  std::list<std::unique_ptr<Link>> sending_;
};

}  // namespace rewire::net
