// The queue pairs of a connection between one local and one remote NIC. They are created anew for
// each join of the rail, and dropped when the rail has failed and delivers nothing any more.
// Thread-compatible: owned by the thread that polls the connection.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "net_plugin/verbs/nic.h"
#include "net_plugin/verbs/offer.h"

namespace rewire::net {

struct RailOptions {
  uint32_t queue_pairs = 2;
  uint8_t timeout = 16;  // 4.096 us << timeout
  uint8_t retries = 6;   // soft-RoCE retries forever with 7
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint16_t pkey_index = 0;
  int gid_index = -1;  // -1: chosen automatically
  // Adaptive routing; nothing: on InfiniBand only. Pieces larger than `apart` bytes are then sent
  // apart from their immediate, so that their packets may arrive in any order.
  std::optional<bool> adaptive;
  size_t apart = 8192;
};

// One event of a rail.
struct RailEvent {
  enum class Kind { kWritten, kArrived, kFailed };
  Kind kind = Kind::kWritten;
  uint32_t id = 0;         // kWritten: id of the write
  uint32_t immediate = 0;  // kArrived
  uint32_t bytes = 0;      // kArrived
  rdma::CompletionStatus status = rdma::CompletionStatus::kSuccess;
};

// True for errors that another path would not fix: a wrong key or buffer, on this side (WrongHere)
// or on the peer's (WrongThere). A request that the peer's device does not understand does not
// count, because this device has made the request.
[[nodiscard]] bool WrongHere(rdma::CompletionStatus status);
[[nodiscard]] bool WrongThere(rdma::CompletionStatus status);

class Rail {
 public:
  static constexpr size_t kBatch = 16;

  explicit Rail(std::shared_ptr<Nic> nic) : nic_(std::move(nic)) {}

  [[nodiscard]] Nic& nic() const { return *nic_; }

  // Creates queue pairs that are ready to be joined, and returns their offer for the peer. The side
  // that answers an offer creates queue pairs that match `peer`.
  absl::StatusOr<Offer> Prepare(const RailOptions& options, const Offer* peer, uint64_t random);
  // answer: null, or Prepare's result; Join() stores the agreed values there, for the peer's join.
  absl::Status Join(const RailOptions& options, const Offer& peer, Offer* answer);
  // Writes zero bytes once on each queue pair. Returns the number of kWritten events that show that
  // all queue pairs work in both directions.
  absl::StatusOr<uint32_t> Probe();
  // Stops all delivery from the peer; outstanding requests fail.
  void Fence();
  // True if all completions from before the fence have been polled.
  [[nodiscard]] bool Drained() const;
  void Drop();
  // Moves the queue pairs out of this rail, because destroying them may be slow.
  Rail Take();

  [[nodiscard]] bool made() const { return completions_ != nullptr; }
  // True if the port has gone down or a queue has failed since the queue pairs were made.
  [[nodiscard]] bool Down() const;
  [[nodiscard]] bool HasRoom() const;
  [[nodiscard]] bool Apart(size_t bytes) const { return bytes > apart_; }
  // The time to send the outstanding bytes and `bytes` more, in an arbitrary unit.
  [[nodiscard]] uint64_t Load(size_t bytes) const;
  [[nodiscard]] uint32_t max_inline() const { return max_inline_; }
  // Posts a request, or two of which the first is not signalled, on the queue pair with the least
  // outstanding bytes. Ids have 32 bits.
  rdma::PostResult Write(std::span<const rdma::SendWork> chain, size_t bytes);
  // Takes up to kBatch completions and returns their number.
  absl::StatusOr<size_t> Poll(std::span<RailEvent> out);

 private:
  static constexpr uint32_t kSends = 64;      // outstanding signalled requests per queue pair
  static constexpr uint32_t kChain = 2;       // requests of one Write
  static constexpr uint32_t kReceives = 256;  // more than a peer keeps outstanding

  struct Queue {
    std::unique_ptr<rdma::QueuePair> pair;
    uint32_t psn = 0;
    std::array<uint32_t, kSends> sizes{};  // of the outstanding requests, in order
    uint32_t first = 0;
    uint32_t sends = 0;
    uint64_t bytes = 0;
    uint32_t receives = 0;  // posted
    uint32_t taken = 0;     // to be posted again in one batch
  };

  absl::Status PostReceives(Queue* queue, uint32_t number, uint32_t count);
  rdma::PostResult Post(Queue* queue, std::span<const rdma::SendWork> chain, size_t bytes);
  absl::StatusOr<rdma::GidEntry> Address(const rdma::PortInfo& port, const RailOptions& options,
                                         const Offer* peer) const;

  std::shared_ptr<Nic> nic_;
  std::shared_ptr<rdma::CompletionQueue> completions_;
  std::vector<Queue> queues_;
  std::array<rdma::Completion, kBatch> batch_;  // of one poll
  std::optional<rdma::GidEntry> gid_;           // the last GID in use
  uint32_t mtu_ = 0;
  uint32_t max_inline_ = 0;
  size_t apart_ = SIZE_MAX;
  uint32_t downs_ = 0;
  uint32_t faults_ = 0;
  uint32_t speed_mbps_ = 1;  // of the slower end
  bool fenced_ = false;
  size_t sends_ = 0;    // outstanding
  uint64_t bytes_ = 0;  // outstanding
};

}  // namespace rewire::net
