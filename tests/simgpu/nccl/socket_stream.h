// One direction of one TCP connection of the socket transport: a queue of at most 32 messages that
// are written or read in order, each with its length in front. Used by one thread at a time (the
// progress thread; the service thread closes it).
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
    uint64_t bytes = 0;  // Of a receive: the room; once the length is there, the length.
    uint64_t header = 0;
    size_t header_done = 0;
    size_t done = 0;
    bool busy = false;
    bool complete = false;
  };

  SocketStream(rewire::UniqueFd fd, bool sending) : fd_(std::move(fd)), sending_(sending) {}

  // Null when 32 messages are outstanding.
  Message* Add(void* data, size_t bytes);
  // Moves what can be moved without waiting.
  ncclResult_t Progress();
  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool sending() const { return sending_; }

 private:
  ncclResult_t MoveOut(Message* m, bool* blocked);
  ncclResult_t MoveIn(Message* m, bool* blocked);

  rewire::UniqueFd fd_;
  const bool sending_;
  Message messages_[kNetMaxRequests];
  uint64_t added_ = 0;     // Messages ever added; the slot is the number modulo 32.
  uint64_t finished_ = 0;  // Messages moved completely.
};

}  // namespace simnccl
