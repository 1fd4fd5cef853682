// The model of the fake: packets, a clock, one switch, and the devices on it. Single-threaded:
// every caller holds the fabric's lock.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reconfig/base/hash.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/rdma/driver.h"
#include "tests/fakes/rdma/device_memory.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/seeded_random.h"

namespace rewire::rdma::fake {

class Endpoint;

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

struct FabricOptions {
  uint64_t seed = 1;
  // Each poll advances the clock by this time. 0: only Fabric::Advance advances the clock.
  Duration poll_step = microseconds(1);
  // Each packet takes up to this additional time; the order within a queue pair stays.
  Duration jitter = microseconds(2);
  // Bytes of a WRITE become visible up to this time after their arrival, in pieces cut at multiples
  // of the unit. The specification promises a unit of 1; hosts' caches give 64.
  Duration landing = microseconds(5);
  uint32_t landing_unit = 1;
};

// One open device: one protection domain and one event descriptor.
struct Opened {
  uint32_t domain = 0;
  UniqueFd event_fd;
  std::deque<DeviceEvent> events;
  void Tell(DeviceEvent event);
};

// A device and its single port.
struct Node {
  uint32_t number = 0;
  DeviceInfo info;
  bool failed = false;
  Duration latency{};
  uint32_t loss_per_million = 0;
  uint32_t max_inline = 0;
  Ece ece;
  bool held = false;
  Time send_free;  // when the port has sent all its packets
  MemoryTable memory;
  std::map<uint32_t, Endpoint*> endpoints;  // key: number
  std::vector<Opened*> opened;
  [[nodiscard]] PortInfo& port() { return info.ports[0]; }
  void TellAll(const DeviceEvent& event);
};

class Network {
 public:
  explicit Network(const FabricOptions& options) : options_(options), random_(options.seed) {}

  [[nodiscard]] const FabricOptions& options() const { return options_; }
  [[nodiscard]] Time now() const { return events_.now(); }
  [[nodiscard]] sim::SeededRandom& random() { return random_; }
  // Returns a digest of all packets and their times so far.
  [[nodiscard]] uint64_t digest() const { return digest_; }
  void Note(uint64_t word) { digest_ = MixWord(digest_, word); }

  Node& AddNode(Node node);
  [[nodiscard]] uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  [[nodiscard]] Node* Find(std::string_view name);
  [[nodiscard]] uint32_t NextNumber() { return ++numbers_; }

  void At(Time time, std::function<void()> event) { events_.At(time, std::move(event)); }
  void Run(Duration duration);

  // Puts the packet on the wire. *last_arrival belongs to the packet's flow, which stays in order.
  void Send(const Path& path, Packet packet, Time* last_arrival);
  // Delivers the packets held for this port, in the order in which they were sent.
  void Release(Node& node);

 private:
  struct Held {
    uint32_t to;
    Packet packet;
  };
  [[nodiscard]] Node* Resolve(const Path& path);
  void Arrive(Node& to, const Packet& packet);

  const FabricOptions options_;
  sim::SeededRandom random_;
  sim::EventQueue events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Held> held_;
  uint64_t digest_ = 0;
  uint32_t numbers_ = 0x100;
};

}  // namespace rewire::rdma::fake
