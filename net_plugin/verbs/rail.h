// The queues of a connection between one NIC here and one there. Made anew each time the rail is
// joined; dropped when it has failed and nothing comes through it any more. Of the thread that
// moves the connection.
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
  uint8_t retries = 6;   // soft-RoCE takes 7 for ever
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint16_t pkey_index = 0;
  int gid_index = -1;  // -1: chosen
  // Adaptive routing; nothing: on InfiniBand. With it, pieces of more bytes than these go apart
  // from their immediate, so that their packets may come in any order.
  std::optional<bool> adaptive;
  size_t apart = 8192;
};

// What has come of a rail.
struct RailEvent {
  enum class Kind { kWritten, kArrived, kFailed };
  Kind kind = Kind::kWritten;
  uint32_t id = 0;         // kWritten: of the write
  uint32_t immediate = 0;  // kArrived
  uint32_t bytes = 0;      // kArrived
  rdma::CompletionStatus status = rdma::CompletionStatus::kSuccess;
};

// What another path would not cure: a key or a buffer is wrong, on this side or on the peer's.
// (That the peer's device does not understand the request is none of these: this device has made
// it.)
[[nodiscard]] bool WrongHere(rdma::CompletionStatus status);
[[nodiscard]] bool WrongThere(rdma::CompletionStatus status);

class Rail {
 public:
  static constexpr size_t kBatch = 16;

  explicit Rail(std::shared_ptr<Nic> nic) : nic_(std::move(nic)) {}

  [[nodiscard]] Nic& nic() const { return *nic_; }

  // Queues that are ready to be joined with the peer's, and what to tell it of them. Who answers an
  // offer makes queues that suit it.
  absl::StatusOr<Offer> Prepare(const RailOptions& options, const Offer* peer, uint64_t random);
  // answer: null, or what Prepare gave: what was agreed on is put into it, for the peer to join.
  absl::Status Join(const RailOptions& options, const Offer& peer, Offer* answer);
  // Writes nothing, once on each queue: how many kWritten there will be if something gets through
  // and back on all of them.
  absl::StatusOr<uint32_t> Probe();
  // Nothing of the peer's comes through any more; what is outstanding fails.
  void Fence();
  // All that came before has been polled.
  [[nodiscard]] bool Drained() const;
  void Drop();
  // Its queues leave it: destroying them may take long.
  Rail Take();

  [[nodiscard]] bool made() const { return completions_ != nullptr; }
  // The port has gone down or a queue has failed since it was made.
  [[nodiscard]] bool Down() const;
  [[nodiscard]] bool HasRoom() const;
  [[nodiscard]] bool Apart(size_t bytes) const { return bytes > apart_; }
  // Time to send what is outstanding and so much more, in units of its own.
  [[nodiscard]] uint64_t Load(size_t bytes) const;
  [[nodiscard]] uint32_t max_inline() const { return max_inline_; }
  // Any request, or two of which the first one is not signalled, on the queue with the least
  // outstanding. An id has 32 bits.
  rdma::PostResult Write(std::span<const rdma::SendWork> chain, size_t bytes);
  // Takes what has completed, up to kBatch, and says how much it was.
  absl::StatusOr<size_t> Poll(std::span<RailEvent> out);

 private:
  static constexpr uint32_t kSends = 64;      // outstanding on a queue, signalled ones
  static constexpr uint32_t kChain = 2;       // requests of one Write
  static constexpr uint32_t kReceives = 256;  // more than a peer has outstanding

  struct Queue {
    std::unique_ptr<rdma::QueuePair> pair;
    uint32_t psn = 0;
    std::array<uint32_t, kSends> sizes{};  // of what is outstanding, in order
    uint32_t first = 0;
    uint32_t sends = 0;
    uint64_t bytes = 0;
    uint32_t receives = 0;  // posted
    uint32_t taken = 0;     // to be posted again, many at once
  };

  absl::Status PostReceives(Queue* queue, uint32_t number, uint32_t count);
  rdma::PostResult Post(Queue* queue, std::span<const rdma::SendWork> chain, size_t bytes);
  absl::StatusOr<rdma::GidEntry> Address(const rdma::PortInfo& port, const RailOptions& options,
                                         const Offer* peer) const;

  std::shared_ptr<Nic> nic_;
  std::shared_ptr<rdma::CompletionQueue> completions_;
  std::vector<Queue> queues_;
  std::array<rdma::Completion, kBatch> batch_;  // of one poll
  std::optional<rdma::GidEntry> gid_;           // the last that was used
  uint32_t mtu_ = 0;
  uint32_t max_inline_ = 0;
  size_t apart_ = SIZE_MAX;
  uint32_t downs_ = 0;
  uint32_t faults_ = 0;
  uint32_t speed_mbps_ = 1;  // the slower end's
  bool fenced_ = false;
  size_t sends_ = 0;    // outstanding
  uint64_t bytes_ = 0;  // outstanding
};

}  // namespace rewire::net
