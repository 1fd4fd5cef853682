// One TCP connection of a link: transfers whole headers and any part of a payload, and never
// blocks. A read of a payload goes directly to its buffer and also takes the header that follows
// the payload. The connection's Loans track the memory that the kernel reads while it sends, and
// the connection limits the kernel's send queue if the path's round trip is short.
// Thread-compatible: owned by one thread at a time, except Loans::on(), which is thread-safe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/socket/wire_format.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

// Memory that the kernel reads while the connection sends it without a copy (MSG_ZEROCOPY; Linux,
// Documentation/networking/msg_zerocopy.rst). The owner must not modify the memory until the kernel
// reports completion. If the kernel reports a copy, as on loopback, no more memory is lent. Each
// connection has one Loans object for its whole life, because the kernel numbers the sends.
class Loans {
 public:
  // A copy of fewer bytes takes less time than pinning and unpinning their pages.
  static constexpr size_t kLeast = 64 << 10;

  explicit Loans(int fd);

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }
  // True if no memory is lent.
  [[nodiscard]] bool empty() const { return owners_.empty(); }
  // Call before send() with MSG_ZEROCOPY. TakeBack() later returns `owner`.
  void Lend(void* owner) { owners_.push_back(owner); }
  // Call if the send() after Lend() has sent nothing or has copied the bytes.
  void Undo() { owners_.pop_back(); }
  // Returns the owners of the loans that the kernel has released since the last call.
  std::vector<void*> TakeBack();

 private:
  const int fd_;
  std::atomic<bool> on_;
  uint32_t first_ = 0;        // the kernel's number of the first owner
  std::deque<void*> owners_;  // null: already taken back
};

// Returns the bytes for SO_SNDBUF, given TCP's smallest round trip in microseconds; nothing: keep
// the kernel's default.
//
// By default the kernel queues several MiB, as long paths need. On loopback that queue makes the
// speed bistable: a sender that is slightly ahead fills the queue, the queued data leave the
// caches, and the receiver, which then reads from memory, stays behind. 256 KiB fits in the cache
// and, at the 10 us limit, still allows 26 GB/s.
[[nodiscard]] std::optional<int> SendBufferOf(uint32_t round_trip_us);

// Applies SendBufferOf() to a connected TCP socket. Returns false, and changes nothing, if the
// round trip is long or unknown, or if the kernel refuses the size.
[[nodiscard]] bool BoundSendQueue(int fd);

class Stream {
 public:
  explicit Stream(UniqueFd fd);
  // Shuts the connection down, so that the peer notices even if a forked child also has the
  // descriptor. Lent memory is not sent any more.
  ~Stream();
  Stream(Stream&&) = default;

  [[nodiscard]] int fd() const { return fd_.get(); }
  // The peer's address, for errors.
  [[nodiscard]] const std::string& peer() const { return peer_; }

  // Writes the header, then the payload. Returns the bytes that the kernel has accepted.
  absl::StatusOr<size_t> Write(const void* header, size_t header_bytes, const void* payload,
                               size_t payload_bytes);
  // Like Write(), but the kernel may read the payload in place after the call. `lent` tells whether
  // the kernel does so; loans() then reports completion.
  absl::StatusOr<size_t> Lend(const void* header, size_t header_bytes, const void* payload,
                              size_t payload_bytes, bool* lent);
  [[nodiscard]] Loans& loans() { return *loans_; }
  // False: no whole header has arrived. OutOfRange: the peer has closed, and all data were read.
  absl::StatusOr<bool> ReadHeader(FrameHeader* header);
  // Returns the bytes of payload that were available, up to `bytes`.
  absl::StatusOr<size_t> ReadPayload(void* to, size_t bytes);
  // True if no byte that was read waits in the buffer.
  [[nodiscard]] bool Empty() const { return begin_ == end_; }

 private:
  // Takes the peeked bytes from the kernel and drops them: kept_ has a copy.
  //
  // Traffic goes one way only, so acknowledgements are packets of their own. If a small message is
  // taken from the kernel, an acknowledgement goes back at once, which costs a quarter of the
  // message's latency. Look() therefore peeks first. The next read, which mostly finds no further
  // data, takes the peeked bytes.
  absl::Status TakeSeen();
  // Peeks at the kernel's next bytes and appends a copy to `kept_`. False: no bytes are available.
  absl::StatusOr<bool> Look();
  // Takes the peeked bytes, and receives up to `bytes` bytes into `to` and the beginning of the
  // next frame into `kept_`, which must be empty. Returns the number of bytes stored at `to`.
  absl::StatusOr<size_t> ReceiveTo(void* to, size_t bytes);
  // Converts the result of recv() to a number of bytes: 0 if no data are available.
  [[nodiscard]] absl::StatusOr<size_t> Received(ssize_t n) const;
  // Names the operation ("send to"), the peer and the system's error.
  [[nodiscard]] absl::Status PeerError(const char* operation, int error) const;

  UniqueFd fd_;
  std::string peer_;
  // Remaining checks for a short round trip; each full send queue uses one check.
  // The first round trips on a busy machine may be long.
  int looks_left_ = 32;
  std::unique_ptr<Loans> loans_;
  std::unique_ptr<char[]> kept_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t seen_ = 0;  // peeked bytes of the kernel's queue that are already in kept_
};

}  // namespace rewire::net
