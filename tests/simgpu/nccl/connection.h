// One direction to one peer: eight staging slots between the arithmetic and the network, as NCCL's
// FIFO. Made and freed through the service thread; used by the progress thread alone in between.
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

  // A slot can take another message. Sending: to be filled and committed. Receiving: to be filled
  // by the network.
  [[nodiscard]] bool HasFreeSlot() const { return queued_ - released_ < kSlots; }
  // Sending: where the next message is written. Valid while HasFreeSlot.
  [[nodiscard]] char* NextSlot() { return Slot(queued_); }
  // Sending: the next slot holds `bytes` bytes to go. Receiving: expects a message so long.
  void Queue(size_t bytes) { size_[queued_++ % kSlots] = bytes; }

  // Receiving: the oldest message that is here and not popped.
  [[nodiscard]] bool Arrived() const { return completed_ > popped_; }
  [[nodiscard]] char* Front() { return Slot(popped_); }
  void Pop() { released_ = ++popped_; }

  // Nothing queued is unfinished (sending: handed to the network; receiving: popped).
  [[nodiscard]] bool Idle() const {
    return completed_ == queued_ && (sending_ || popped_ == completed_);
  }
  // Something is with the network.
  [[nodiscard]] bool Waiting() const { return completed_ < queued_; }

  // Posts what is queued and tests what is posted. Sets *moved when anything changed.
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
  // Counts of messages, each at most the one before: queued, posted, completed, popped.
  uint64_t queued_ = 0;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t popped_ = 0;
  uint64_t released_ = 0;
};

}  // namespace simnccl
