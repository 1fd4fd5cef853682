// The messages in which one side describes its queues for a rail, or what has arrived when a rail
// has failed (docs/net.md). Pure, thread-safe. Decoding accepts any bytes; a refusal is an
// InvalidArgument that names the message, the field, its value and the rule (wire_format.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/abi/net_core.h"
#include "reconfig/rdma/port.h"
#include "reconfig/rdma/queue_pair.h"

namespace rewire::net {

inline constexpr size_t kMostQueuePairs = 16;  // of a rail

struct Offer {
  struct Queue {
    uint32_t number = 0;
    uint32_t first_psn = 0;
    rdma::Ece ece;  // vendor 0: none
  };
  rdma::LinkLayer link_layer = rdma::LinkLayer::kUnknown;
  rdma::GidType gid_type = rdma::GidType::kInfiniBand;
  rdma::Gid gid;
  uint16_t lid = 0;
  uint32_t mtu = 0;
  uint32_t speed_mbps = 0;
  uint64_t ring = 0;       // address for clear-to-send entries; set by the sender
  uint32_t ring_rkey = 0;  // on this rail
  std::vector<Queue> queues;
};
std::string Encode(const Offer& offer);
absl::StatusOr<Offer> DecodeOffer(std::string_view bytes);

// The receiver's report: the pieces that have arrived of the incomplete receives. Receives before
// `next` that are not listed are complete.
struct Received {
  struct Receive {
    uint64_t sequence = 0;
    std::vector<uint64_t> pieces;  // a mask for each buffer
  };
  uint64_t next = 0;
  std::vector<Receive> receives;
};
std::string Encode(const Received& received);
absl::StatusOr<Received> DecodeReceived(std::string_view bytes);

// The sender's report: the clear-to-send entries that have arrived.
struct Cleared {
  uint64_t head = 0;  // all entries before this receive have arrived
  uint32_t seen = 0;  // one bit per receive, starting at `head`
};
std::string Encode(const Cleared& cleared);
absl::StatusOr<Cleared> DecodeCleared(std::string_view bytes);

}  // namespace rewire::net
