// NCCL's sending end over the streams of a link. The first chunk of a message goes on stream 0, the
// others on whichever stream has room.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/socket/link.h"

namespace rewire::net {

class Links;

class SocketSender final : public Sender {
 public:
  // The link goes back to `links` at the end, unless something was left in it.
  SocketSender(std::unique_ptr<Link> link, Links* links);
  ~SocketSender() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::Status Deregister(void* mr) override;
  absl::StatusOr<Request*> Isend(const void* data, size_t bytes, int tag, void* mr) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  struct Message : Request {
    bool busy = false;
    const char* data = nullptr;
    size_t bytes = 0;
    size_t taken = 0;  // by streams
    size_t sent = 0;
    bool headed = false;  // its first chunk was taken
    uint64_t sequence = 0;
    int tag = 0;
    [[nodiscard]] bool done() const { return headed && taken == bytes && sent == bytes; }
  };
  // What a stream is about to write.
  struct Writing {
    Message* message = nullptr;  // none: free
    FrameHeader header;
    size_t header_sent = 0;
    size_t payload_sent = 0;
  };

  // Writes what the kernel takes now.
  void Move();
  absl::Status MoveStream(size_t stream);
  // The next chunk that this stream may write; false: none.
  bool Take(size_t stream);

  std::unique_ptr<Link> link_;
  Links* const links_;
  std::array<Message, kMaxRequests> messages_;  // by sequence
  uint64_t next_ = 0;                           // sequence of the next message
  uint64_t oldest_ = 0;                         // of the oldest that no stream has taken whole
  std::vector<Writing> writing_;
  absl::Status failure_;
};

}  // namespace rewire::net
