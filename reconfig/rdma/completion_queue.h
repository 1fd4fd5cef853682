// A completion queue. Owned by the thread that owns the queue pairs on it.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "reconfig/rdma/work.h"

namespace rewire::rdma {

class CompletionQueue {
 public:
  CompletionQueue() = default;
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;
  virtual ~CompletionQueue() = default;

  // Identifies this queue in DeviceEvent::queue; unique in the device.
  [[nodiscard]] virtual uint32_t id() const = 0;
  // Takes up to `out.size()` completions and returns their number. Never blocks. Completions of one
  // queue pair's send queue come in the order of posting, and so do those of its receive queue.
  [[nodiscard]] virtual absl::StatusOr<size_t> Poll(std::span<Completion> out) = 0;
};

}  // namespace rewire::rdma
