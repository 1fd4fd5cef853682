// One direction to one peer: eight staging slots between the arithmetic and the network, as in
// NCCL's FIFO. The service thread makes and frees it; in between it is owned by the progress
// thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/simgpu/nccl/net.h"

namespace simnccl {

inline constexpr int kSlots = 8;

class Connection {
 public:
  Connection(Net* net, void* comm, bool sending, char* staging, size_t staging_bytes, void* mh)
      : net_(net),
        comm_(comm),
        sending_(sending),
        staging_(staging),
        slot_bytes_(staging_bytes / kSlots),
        mh_(mh) {}

  [[nodiscard]] bool sending() const { return sending_; }
  [[nodiscard]] size_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] Net* net() const { return net_; }
  [[nodiscard]] void* comm() const { return comm_; }
  [[nodiscard]] void* mh() const { return mh_; }
  [[nodiscard]] char* staging() const { return staging_; }

  // Returns whether a slot can take another message. On the sending side, the caller fills and
  // queues the slot; on the receiving side, the network fills it.
  [[nodiscard]] bool HasFreeSlot() const { return queued_ - released_ < kSlots; }
  // Sending side: the address of the next message. Valid while HasFreeSlot().
  [[nodiscard]] char* NextSlot() { return Slot(queued_); }
  // Sending side: queues the next slot with `bytes` bytes. Receiving side: expects a message of
  // `bytes` bytes.
  void Queue(size_t bytes) { size_[queued_++ % kSlots] = bytes; }

  // Receiving side: whether the oldest message that was not popped has arrived.
  [[nodiscard]] bool Arrived() const { return completed_ > popped_; }
  [[nodiscard]] char* Front() { return Slot(popped_); }
  void Pop() { released_ = ++popped_; }

  // Returns whether every queued message is finished: handed to the network (sending) or popped
  // (receiving).
  [[nodiscard]] bool Idle() const {
    return completed_ == queued_ && (sending_ || popped_ == completed_);
  }
  // Returns whether a queued message has not completed in the network.
  [[nodiscard]] bool Waiting() const { return completed_ < queued_; }

  // Posts queued messages and tests posted messages. Sets *moved if anything changed.
  ncclResult_t Progress(bool* moved);

 private:
  [[nodiscard]] char* Slot(uint64_t number) { return staging_ + number % kSlots * slot_bytes_; }

  Net* const net_;
  void* const comm_;
  const bool sending_;
  char* const staging_;
  const size_t slot_bytes_;
  void* const mh_;
  size_t size_[kSlots] = {};
  void* request_[kSlots] = {};
  // Counts of messages. Each count is at most the previous one: queued, posted, completed, popped.
  uint64_t queued_ = 0;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t popped_ = 0;
  uint64_t released_ = 0;
};

}  // namespace simnccl
