// The requests to a queue pair and the results of its completion queue. Thread-compatible values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace rewire::rdma {

// A range of this side's registered memory.
struct Segment {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
};

enum class Operation : uint8_t { kWrite, kWriteWithImmediate, kRead, kSend };

struct SendWork {
  uint64_t id = 0;
  Operation operation = Operation::kWrite;
  // The caller owns the list, which the post reads. The listed memory belongs to the device, which
  // reads the memory (kRead: writes the memory), until the completion.
  std::span<const Segment> segments = {};
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;  // kWriteWithImmediate; in the host's byte order on both sides
  // The request reports its completion. The queue's slots become free only when a signalled request
  // at or after them has completed and was polled: signal at least one in max_send requests.
  bool signalled = true;
  // The post copies the bytes; no lkey is needed. Not for kRead.
  bool inlined = false;
};

struct ReceiveWork {
  uint64_t id = 0;
  std::span<const Segment> segments = {};  // empty when only immediates are expected
};

struct PostResult {
  absl::Status status;
  size_t posted = 0;  // from the chain's front; these requests complete whatever the status says
};

enum class CompletionStatus : uint8_t {
  kSuccess,
  kLocalLength,
  kLocalQueuePair,
  kLocalProtection,
  kFlushed,
  kBadResponse,
  kLocalAccess,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kRetryExceeded,
  kRnrRetryExceeded,
  kRemoteAborted,
  kFatal,
  kResponseTimeout,
  kOther,
};
[[nodiscard]] std::string_view Name(CompletionStatus status);

enum class CompletionKind : uint8_t { kWrite, kRead, kSend, kReceive, kReceiveImmediate };

// If the status is not kSuccess, only id, status, queue_pair and vendor_error are valid.
struct Completion {
  uint64_t id = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionKind kind = CompletionKind::kWrite;
  uint32_t bytes = 0;  // received, or read
  std::optional<uint32_t> immediate;
  uint32_t queue_pair = 0;  // number
  uint32_t vendor_error = 0;
};

}  // namespace rewire::rdma
