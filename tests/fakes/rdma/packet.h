// A packet between two queue pairs of the fake. Only the fabric uses it, under the fabric's lock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "reconfig/rdma/port.h"

namespace rewire::rdma::fake {

enum class PacketKind : uint8_t { kWrite, kSend, kReadRequest, kReadResponse, kAck, kNak };
enum class NakCode : uint8_t {
  kSequence,
  kReceiverNotReady,
  kInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
};

// The path from one port to another, fixed when a queue pair becomes ready to receive. The owner of
// the addresses is looked up for every packet, because addresses change.
struct Path {
  uint32_t from_node = 0;
  GidType type = GidType::kInfiniBand;
  std::optional<Gid> from_gid;
  std::optional<Gid> to_gid;
  uint16_t to_lid = 0;
};

struct Packet {
  PacketKind kind = PacketKind::kAck;
  uint32_t from_queue_pair = 0;
  uint32_t to_queue_pair = 0;
  uint32_t psn = 0;  // 24 bits
  bool first = false;
  bool last = false;
  uint64_t address = 0;  // target of this packet's bytes, or address to read
  uint64_t length = 0;   // of the whole message, or bytes to read
  uint32_t rkey = 0;
  std::optional<uint32_t> immediate;
  // The claimed sender: a receiver that expects another sender ignores the packet.
  GidType from_type = GidType::kInfiniBand;
  std::optional<Gid> from_gid;
  uint32_t ece_options = 0;
  NakCode nak = NakCode::kSequence;
  std::string payload;
};

// Returns the number nearest to `reference` whose low 24 bits are `psn`.
inline uint64_t Unwrapped(uint32_t psn, uint64_t reference) {
  const uint32_t ahead = (psn - static_cast<uint32_t>(reference)) & 0xffffff;
  return ahead < 0x800000 ? reference + ahead : reference + ahead - 0x1000000;
}

}  // namespace rewire::rdma::fake
