// A completion queue. Of the owner thread of the queue pairs on it.
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

  // Names this queue in DeviceEvent::queue; unique in the device.
  [[nodiscard]] virtual uint32_t id() const = 0;
  // Takes up to `out.size()` completions and says how many. Never blocks. Completions of one queue
  // pair's send queue come in the order of posting, those of its receive queue likewise.
  [[nodiscard]] virtual absl::StatusOr<size_t> Poll(std::span<Completion> out) = 0;
};

}  // namespace rewire::rdma
