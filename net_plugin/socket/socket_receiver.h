// NCCL's receiving end over the streams of a link: every payload goes straight to where it belongs.
// A stream whose next message has no place yet is not read: the kernel holds its sender back.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/socket/link.h"

namespace rewire::net {

class Links;

class SocketReceiver final : public Receiver {
 public:
  // The link goes back to `links` at the end, unless something is left in it.
  SocketReceiver(std::unique_ptr<Link> link, Links* links);
  ~SocketReceiver() override;

  absl::StatusOr<void*> Register(void* data, size_t bytes, int type) override;
  absl::Status Deregister(void* mr) override;
  // One buffer at a time.
  absl::StatusOr<Request*> Irecv(int count, void* const* data, const size_t* bytes, const int* tags,
                                 void* const* mrs) override;
  absl::StatusOr<bool> Test(Request* request, int* sizes) override;

 private:
  struct Message : Request {
    bool busy = false;
    char* data = nullptr;
    size_t room = 0;
    uint64_t sequence = 0;
    bool known = false;  // its first chunk has come
    size_t bytes = 0;
    size_t received = 0;
    [[nodiscard]] bool done() const { return known && received == bytes; }
  };
  struct Reading {
    bool headed = false;
    FrameHeader header;
    Message* message = nullptr;  // none: it has no place yet
    size_t payload = 0;          // received of it
  };

  void Move();
  absl::Status MoveStream(size_t stream);
  // The message that this header's payload belongs to, or null when it has no place yet.
  absl::StatusOr<Message*> PlaceOf(const FrameHeader& header);

  std::unique_ptr<Link> link_;
  Links* const links_;
  std::array<Message, kMaxRequests> messages_;  // by sequence
  uint64_t next_ = 0;                           // sequence of the next message to get a place
  uint64_t unfinished_ = 0;                     // messages with a place that have not come whole
  std::vector<Reading> reading_;
  absl::Status failure_;
};

}  // namespace rewire::net
