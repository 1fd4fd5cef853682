// One direction of one TCP connection of the socket transport: a queue of at most 32 messages that
// are written or read in order, each with a length prefix. Thread-compatible: owned by the progress
// thread; the service thread closes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"
#include "reconfig/base/unique_fd.h"
#include "tests/simgpu/nccl/net.h"

namespace simnccl {

class SocketStream {
 public:
  struct Message {
    SocketStream* stream = nullptr;
    char* data = nullptr;
    uint64_t bytes = 0;  // receive: the buffer's size; the message's length once it has arrived
    uint64_t header = 0;
    size_t header_done = 0;
    size_t done = 0;
    bool busy = false;
    bool complete = false;
  };

  SocketStream(rewire::UniqueFd fd, bool sending) : fd_(std::move(fd)), sending_(sending) {}

  // Returns null if 32 messages are outstanding.
  Message* Add(void* data, size_t bytes);
  // Moves data without waiting.
  ncclResult_t Progress();
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool sending() const { return sending_; }

 private:
  ncclResult_t MoveOut(Message* m, bool* blocked);
  ncclResult_t MoveIn(Message* m, bool* blocked);

  rewire::UniqueFd fd_;
  const bool sending_;
  Message messages_[kNetMaxRequests];
  uint64_t added_ = 0;     // messages ever added; the slot is the number modulo 32
  uint64_t finished_ = 0;  // messages moved completely
};

}  // namespace simnccl
