// RDMA devices in memory with the verbs' semantics, for tests: one switch, a clock that moves when
// somebody polls (FabricOptions::poll_step) or the test says so, and chance from one seed: the same
// calls in the same order give the same run. docs/rdma.md says what is modelled and what is not.
// Thread-safe, under one lock; whatever it has handed out may outlive it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reconfig/base/mutex.h"
#include "reconfig/rdma/driver.h"
#include "tests/fakes/rdma/network.h"

namespace rewire::rdma::fake {

struct DeviceSpec {
  std::string name;
  LinkLayer link_layer = LinkLayer::kEthernet;
  uint32_t speed_mbps = 100'000;
  Duration latency = microseconds(1);  // of its port, one way
  uint32_t mtu = 4096;
  uint32_t max_work_requests = 16384;
  uint32_t max_completions = 1 << 20;
  uint32_t max_inline = 512;
  Ece ece = {0xfa4e, 0x5};  // vendor 0: it has none
  // Empty: on Ethernet what Linux gives an interface with an IPv4 address (link-local v1 and v2,
  // IPv4 v1 and v2), on InfiniBand one row.
  std::vector<GidEntry> gids = {};
};

// The lock and what it guards, shared by all that a fabric hands out.
struct Core {
  explicit Core(const FabricOptions& options) : network(options) {}
  Mutex mutex;
  Network network REWIRE_GUARDED_BY(mutex);
};

class Fabric {
 public:
  explicit Fabric(const FabricOptions& options = {}) : core_(std::make_shared<Core>(options)) {}

  void AddDevice(const DeviceSpec& spec) REWIRE_EXCLUDES(core_->mutex);
  // A host with these devices; it may be asked before it has any.
  [[nodiscard]] std::unique_ptr<Driver> MakeDriver(std::vector<std::string> devices);

  // The clock.
  void Advance(Duration duration);
  [[nodiscard]] Time now();
  // Of all that has travelled so far: equal for equal runs.
  [[nodiscard]] uint64_t digest();

  // Faults. What is on its way to a port that is down when it arrives is lost.
  void SetLinkUp(std::string_view device, bool up);
  void SetSpeed(std::string_view device, uint32_t mbps);
  void SetLatency(std::string_view device, Duration latency);
  // Of a million packets that the device sends.
  void SetLoss(std::string_view device, uint32_t per_million);
  // Packets to the device wait in the switch until Release, while their senders time out.
  void Hold(std::string_view device);
  void Release(std::string_view device);
  // The table after a flap or a change of address; tells the GID change.
  void SetGids(std::string_view device, std::vector<GidEntry> gids);
  // Every completion queue of the device is full.
  void OverrunCompletions(std::string_view device);
  // Every queue pair is in error, nothing can be made any more.
  void FailDevice(std::string_view device);

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace rewire::rdma::fake
