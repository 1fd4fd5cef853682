// One TCP connection of a link: whole headers and any part of a payload, without ever blocking.
// A payload is read straight to its place, together with the header that follows the payload.
// Owned by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "net_plugin/socket/frame.h"
#include "net_plugin/socket/loans.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::net {

class Stream {
 public:
  explicit Stream(UniqueFd fd);
  // The other end learns of it even if a forked child has the descriptor, too. What is lent is not
  // sent any more.
  ~Stream();
  Stream(Stream&&) = default;

  [[nodiscard]] int fd() const { return fd_.get(); }

  // Bytes written: fewer than asked when the kernel takes no more now. Header first, then payload.
  absl::StatusOr<size_t> Write(const void* header, size_t header_bytes, const void* payload,
                               size_t payload_bytes);
  // The same, but the kernel may read the payload where it is, later, too: `lent` tells whether it
  // does, and if so loans() says when it is through.
  absl::StatusOr<size_t> Lend(const void* header, size_t header_bytes, const void* payload,
                              size_t payload_bytes, bool* lent);
  [[nodiscard]] Loans& loans() { return *loans_; }
  // False: no whole header is there yet. OutOfRange: the other end is closed, and all was read.
  absl::StatusOr<bool> ReadHeader(FrameHeader* header);
  // Bytes of payload that were there, up to `bytes`: fewer when the kernel has no more now.
  absl::StatusOr<size_t> ReadPayload(void* to, size_t bytes);
  // Nothing that was read waits to be taken.
  [[nodiscard]] bool Empty() const { return begin_ == end_; }

 private:
  // Traffic goes one way only, so that acknowledgements ride on nothing: when a small message is
  // taken from the kernel a packet goes back at once, which costs a quarter of a message's way. So
  // it is looked at first, and taken when somebody looks for what follows: mostly nothing yet.
  absl::Status TakeSeen();
  // Looks at the kernel's next bytes and keeps a copy after what is kept. False: none are there.
  absl::StatusOr<bool> Look();
  // Takes what was seen and receives what follows: up to `bytes` to there, then the beginning of
  // the next frame, which is kept. The number of bytes that went there. Nothing may be kept before.
  absl::StatusOr<size_t> ReceiveTo(void* to, size_t bytes);

  UniqueFd fd_;
  // How often it is still asked, each time the kernel's queue is full, whether the way is short
  // (send_queue.h): the first round trips of a busy machine may be long.
  int looks_left_ = 32;
  std::unique_ptr<Loans> loans_;
  std::unique_ptr<char[]> kept_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t seen_ = 0;  // of the kernel's next bytes: kept here already
};

}  // namespace rewire::net
