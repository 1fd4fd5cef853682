// A reliable connected queue pair. Thread-compatible: one thread at a time may call a queue pair,
// its completion queues and the other queue pairs on these.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "reconfig/rdma/completion_queue.h"
#include "reconfig/rdma/gid.h"
#include "reconfig/rdma/work.h"

namespace rewire::rdma {

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
  uint8_t timeout = 14;     // 4.096 us << timeout, 0: for ever
  uint8_t retries = 7;      // of the transport
  uint8_t rnr_retries = 7;  // 7: for ever
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
