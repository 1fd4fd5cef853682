// RDMA devices in memory with the verbs' semantics, for tests. The fabric has one switch, a clock
// and one random seed. The clock advances when somebody polls (FabricOptions::poll_step) or when
// the test advances it. The same calls in the same order give the same run. docs/rdma.md lists the
// modelled behaviour and the limits. Thread-safe, under one lock; objects made by the fabric may
// outlive it.
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
  Duration latency = microseconds(1);  // one way, of the device's port
  uint32_t mtu = 4096;
  uint32_t max_work_requests = 16384;
  uint32_t max_completions = 1 << 20;
  uint32_t max_inline = 512;
  Ece ece = {0xfa4e, 0x5};  // vendor 0: the device has no ECE
  // If empty, InfiniBand has one row. Ethernet has Linux's rows for an interface with an IPv4
  // address: link-local v1 and v2, IPv4 v1 and v2.
  std::vector<GidEntry> gids = {};
};

// The lock and the state that it guards, shared by all objects of a fabric.
struct Core {
  explicit Core(const FabricOptions& options) : network(options) {}
  Mutex mutex;
  Network network REWIRE_GUARDED_BY(mutex);
};

class Fabric {
 public:
  explicit Fabric(const FabricOptions& options = {}) : core_(std::make_shared<Core>(options)) {}

  void AddDevice(const DeviceSpec& spec) REWIRE_EXCLUDES(core_->mutex);
  // Makes a host with these devices; the host may be queried before a device exists.
  [[nodiscard]] std::unique_ptr<Driver> MakeDriver(std::vector<std::string> devices);

  // The clock of the fabric.
  void Advance(Duration duration);
  [[nodiscard]] Time now();
  // Returns a digest of all packets so far: equal for equal runs.
  [[nodiscard]] uint64_t digest();

  // Faults. A packet is lost if its destination port is down when the packet arrives.
  void SetLinkUp(std::string_view device, bool up);
  void SetSpeed(std::string_view device, uint32_t mbps);
  void SetLatency(std::string_view device, Duration latency);
  // Loses this number out of each million packets that the device sends.
  void SetLoss(std::string_view device, uint32_t per_million);
  // Packets to the device wait in the switch until Release; meanwhile their senders time out.
  void Hold(std::string_view device);
  void Release(std::string_view device);
  // Sets the table after a flap or a change of address, and reports the GID change.
  void SetGids(std::string_view device, std::vector<GidEntry> gids);
  // Fills every completion queue of the device.
  void OverrunCompletions(std::string_view device);
  // Puts every queue pair of the device in error; no new object can be made.
  void FailDevice(std::string_view device);

 private:
  const std::shared_ptr<Core> core_;
};

}  // namespace rewire::rdma::fake
