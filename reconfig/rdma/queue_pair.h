// Reliable connected queue pairs, their work requests, and the queues of their completions. The
// verbs driver and the tests' fake implement the interfaces; the net plugin uses them. Values are
// thread-compatible. One thread at a time may call a queue pair, its completion queues and the
// other queue pairs on these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/rdma/port.h"

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

// Owned by the thread that owns the queue pairs on this queue.
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

// The accesses that memory or a queue pair grants to remote sides (local_write: to the device).
struct Access {
  bool local_write = false;
  bool remote_write = false;
  bool remote_read = false;
  // Memory only: the device may reorder its writes on the PCI bus. No effect if the library or the
  // device does not support it.
  bool relaxed_ordering = false;
};

struct QueuePairOptions {
  std::shared_ptr<CompletionQueue> send_completions;
  std::shared_ptr<CompletionQueue> receive_completions;
  uint32_t max_send = 1;
  uint32_t max_receive = 1;
  uint32_t max_segments = 1;
  uint32_t max_inline = 0;  // bytes
};

enum class QueuePairState : uint8_t { kReset, kInit, kReadyToReceive, kReadyToSend, kError };

struct InitAttributes {
  uint8_t port = 1;
  uint16_t pkey_index = 0;
  Access access;
};

struct ReceiveAttributes {
  uint32_t mtu = 1024;  // bytes: 256, 512, 1024, 2048 or 4096; at most the active MTU of both ports
  uint32_t peer_number = 0;
  uint32_t first_psn = 0;  // 24 bits; the peer's SendAttributes::first_psn
  // The peer: its GID with the local GID's index (always on Ethernet), or its LID alone.
  std::optional<Gid> peer_gid;
  uint8_t gid_index = 0;
  uint16_t peer_lid = 0;
  uint8_t service_level = 0;
  uint8_t traffic_class = 0;
  uint8_t hop_limit = 255;
  uint8_t max_reads = 1;       // outstanding READs as responder
  uint8_t min_rnr_timer = 12;  // code; 12 is 0.64 ms
};

struct SendAttributes {
  uint32_t first_psn = 0;   // 24 bits
  uint8_t timeout = 14;     // 4.096 us << timeout, 0: no limit
  uint8_t retries = 7;      // of the transport
  uint8_t rnr_retries = 7;  // 7: no limit
  uint8_t max_reads = 1;    // outstanding READs as requester
};

// Enhanced connection establishment: one vendor's options, which both sides must agree on.
struct Ece {
  uint32_t vendor = 0;
  uint32_t options = 0;
};

class QueuePair {
 public:
  QueuePair() = default;
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;
  // Outstanding requests end without a completion.
  virtual ~QueuePair() = default;

  [[nodiscard]] virtual uint32_t number() const = 0;
  // The device's actual value: at least the requested one.
  [[nodiscard]] virtual uint32_t max_inline() const = 0;
  [[nodiscard]] virtual absl::StatusOr<QueuePairState> QueryState() = 0;

  // Allowed order: kReset to kInit to kReadyToReceive to kReadyToSend; other transitions fail.
  [[nodiscard]] virtual absl::Status ToInit(const InitAttributes& attributes) = 0;
  [[nodiscard]] virtual absl::Status ToReadyToReceive(const ReceiveAttributes& attributes) = 0;
  [[nodiscard]] virtual absl::Status ToReadyToSend(const SendAttributes& attributes) = 0;
  // Works from any state but kReset. Everything outstanding completes as kFlushed. After the call
  // has returned, no more data of the peer land through this queue pair.
  [[nodiscard]] virtual absl::Status ToError() = 0;
  // Works from any state. Like ToError, but outstanding requests are dropped. Poll the completion
  // queues empty first: queued completions may or may not survive, depending on the device.
  [[nodiscard]] virtual absl::Status ToReset() = 0;

  // Unimplemented if the library or the device has no ECE. Call SetEce before ToReadyToReceive.
  [[nodiscard]] virtual absl::StatusOr<Ece> QueryEce() = 0;
  [[nodiscard]] virtual absl::Status SetEce(const Ece& ece) = 0;

  // Posts a chain in order. ResourceExhausted: the queue is full. Only in kReadyToSend and kError.
  [[nodiscard]] virtual PostResult PostSend(std::span<const SendWork> chain) = 0;
  // Works in any state but kReset. In kError the request completes as kFlushed or never, depending
  // on the device: wait only for requests that were posted before.
  [[nodiscard]] virtual PostResult PostReceive(std::span<const ReceiveWork> chain) = 0;
};

}  // namespace rewire::rdma
