// What is asked of a queue pair, and what comes back through its completion queue. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"

namespace rewire::rdma {

// A piece of registered memory of this side.
struct Segment {
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t lkey = 0;
};

enum class Operation : uint8_t { kWrite, kWriteWithImmediate, kRead, kSend };

struct SendWork {
  uint64_t id = 0;
  Operation operation = Operation::kWrite;
  // Of the caller, read while it is posted; what it points to is read when it is sent (kRead:
  // written when it arrives) and belongs to the device until the completion.
  std::span<const Segment> segments = {};
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint32_t immediate = 0;  // kWriteWithImmediate; in this machine's byte order on both sides
  // Completes visibly. The queue's slots come free only when a signalled completion of this or a
  // later request is polled: at least one in max_send must be signalled.
  bool signalled = true;
  // The bytes are copied while it is posted, no lkey needed. Not for kRead.
  bool inlined = false;
};

struct ReceiveWork {
  uint64_t id = 0;
  std::span<const Segment> segments = {};  // empty when only immediates are expected
};

struct PostResult {
  absl::Status status;
  size_t posted = 0;  // of the chain, from its front; these will complete whatever the status says
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

// With a status other than kSuccess only id, status, queue_pair and vendor_error mean anything.
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
