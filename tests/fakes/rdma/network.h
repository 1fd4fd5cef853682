// The model behind the fake: a clock, one switch, and the devices on it. Single-threaded: the
// fabric's lock is held by whoever calls anything here.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reconfig/base/hash.h"
#include "reconfig/base/unique_fd.h"
#include "reconfig/rdma/driver.h"
#include "tests/fakes/rdma/memory_table.h"
#include "tests/fakes/rdma/packet.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/seeded_random.h"

namespace rewire::rdma::fake {

class Endpoint;

struct FabricOptions {
  uint64_t seed = 1;
  // Time passes when somebody polls: this much at each poll. 0: only by Fabric::Advance.
  Duration poll_step = microseconds(1);
  // Each packet takes up to this much longer; the order within a queue pair stays.
  Duration jitter = microseconds(2);
  // Bytes of a WRITE become visible up to this long after they have arrived, in pieces cut at
  // multiples of the unit. 1 is all that the specification promises; 64 is what hosts' caches do.
  Duration landing = microseconds(5);
  uint32_t landing_unit = 1;
};

// One open device, that is one protection domain and one event descriptor.
struct Opened {
  uint32_t domain = 0;
  UniqueFd event_fd;
  std::deque<DeviceEvent> events;
  void Tell(DeviceEvent event);
};

// A device and its only port.
struct Node {
  uint32_t number = 0;
  DeviceInfo info;
  bool failed = false;
  Duration latency{};
  uint32_t loss_per_million = 0;
  uint32_t max_inline = 0;
  Ece ece;
  bool held = false;
  Time send_free;  // when the port has sent what it was given
  MemoryTable memory;
  std::map<uint32_t, Endpoint*> endpoints;  // by number
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
  // A number that sums up all that has travelled so far, and when.
  [[nodiscard]] uint64_t digest() const { return digest_; }
  void Note(uint64_t word) { digest_ = MixWord(digest_, word); }

  Node& AddNode(Node node);
  [[nodiscard]] uint32_t nodes() const { return static_cast<uint32_t>(nodes_.size()); }
  [[nodiscard]] Node* Find(std::string_view name);
  [[nodiscard]] uint32_t NextNumber() { return ++numbers_; }

  void At(Time time, std::function<void()> event) { events_.At(time, std::move(event)); }
  void Run(Duration duration);

  // Puts the packet on the wire; *last_arrival is of its flow, which stays in order.
  void Send(const Path& path, Packet packet, Time* last_arrival);
  // What was held for this port arrives, in the order it was sent.
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
