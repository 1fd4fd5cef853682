// One TCP connection of a link: transfers whole headers and any part of a payload, and never
// blocks. A read of a payload goes directly to its buffer and also takes the header that follows
// the payload. Thread-compatible: owned by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "net_plugin/socket/frame.h"
#include "net_plugin/socket/loans.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

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
  // Traffic goes one way only, so acknowledgements are packets of their own. If a small message is
  // taken from the kernel, an acknowledgement goes back at once, which costs a quarter of the
  // message's latency. The bytes are therefore peeked first, and taken by the next read, which
  // mostly finds no further data.
  absl::Status TakeSeen();
  // Peeks at the kernel's next bytes and appends a copy to `kept_`. False: no bytes are available.
  absl::StatusOr<bool> Look();
  // Takes the peeked bytes, and receives up to `bytes` bytes into `to` and the beginning of the
  // next frame into `kept_`, which must be empty. Returns the number of bytes stored at `to`.
  absl::StatusOr<size_t> ReceiveTo(void* to, size_t bytes);
  // Converts the result of recv() to a number of bytes: 0 if no data are available.
  [[nodiscard]] absl::StatusOr<size_t> Received(ssize_t n) const;
  // Names the operation ("send to"), the peer and the system's error.
  [[nodiscard]] absl::Status Broken(const char* operation, int error) const;

  UniqueFd fd_;
  std::string peer_;
  // Remaining checks for a short round trip (send_queue.h); each full send queue uses one check.
  // The first round trips on a busy machine may be long.
  int looks_left_ = 32;
  std::unique_ptr<Loans> loans_;
  std::unique_ptr<char[]> kept_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t seen_ = 0;  // peeked bytes of the kernel's queue that are already in kept_
};

}  // namespace rewire::net
