// A kernel's end of a connection, with its running step: the address of the next slot, the slot's
// state, and the notification of the other end. Owned by the thread of one block.
#pragma once

#include "tests/nccl_host/kernels/layout.h"
#include "tests/nccl_host/kernels/progress.h"

namespace nccl_host {

class ConnectionEnd {
 public:
  // Steps start at a multiple of `round`.
  ConnectionEnd(Connection* connection, uint64_t round)
      : connection_(connection), step_((connection->step + round - 1) / round * round) {}

  [[nodiscard]] uint64_t step() const { return step_; }
  // Returns the slot of the step in the buffer of `protocol`, whose slots have `slot_bytes` bytes.
  [[nodiscard]] char* Slot(Protocol protocol, size_t slot_bytes) const {
    const uint64_t index = step_ % kSteps;
    if (protocol == kSimple) {
      if (FifoSlot* const slot = Proxied(index);
          slot != nullptr && Load(&slot->mode) == kAtOffset) {
        return connection_->buffers[kSimple] + Load(&slot->offset);
      }
      slot_bytes = static_cast<size_t>(connection_->step_size);
    }
    return connection_->buffers[protocol] + index * slot_bytes;
  }
  // Returns whether the receiver has emptied the next `steps` slots.
  [[nodiscard]] bool IsFree(uint64_t steps) const {
    return Load(connection_->head) + kSteps >= step_ + steps;
  }
  // Returns whether the sender has filled the next `steps` slots.
  [[nodiscard]] bool IsFilled(uint64_t steps) const {
    return Load(connection_->tail) >= step_ + steps;
  }
  // A device waits only for the flags in the lines of LL and LL128. The proxy thread writes lines
  // with the kernel's copy, whose stores may appear in any order. The emulation therefore also
  // waits for the proxy thread's counter.
  [[nodiscard]] bool IsDelivered() const { return connection_->fifo == nullptr || IsFilled(1); }
  // Tells the proxy thread the number of bytes in the next slot.
  void Announce(int64_t bytes) {
    if (FifoSlot* const slot = Proxied(step_ % kSteps)) Store(&slot->size, bytes);
  }
  [[nodiscard]] bool has_proxy() const { return connection_->fifo != nullptr; }
  void Advance(uint64_t steps) { step_ += steps; }
  void PostTail() { Store(connection_->tail, step_); }
  void PostHead() { Store(connection_->head, step_); }
  // Stores the step from which the next kernel continues.
  void Keep() { connection_->step = step_; }

 private:
  [[nodiscard]] FifoSlot* Proxied(uint64_t index) const {
    return connection_->fifo == nullptr ? nullptr : connection_->fifo + index;
  }

  Connection* connection_;
  uint64_t step_;
};

}  // namespace nccl_host
