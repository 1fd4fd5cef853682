// One open port of an RDMA device: the memory regions that are registered with it (MrCache) and the
// state that the device reports. All connections on the port share the object and keep it alive.
// Thread-safe: the service thread registers while the progress thread uses existing regions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/workers.h"
#include "reconfig/base/mutex.h"
#include "reconfig/rdma/driver.h"

namespace rewire::net {

// The memory regions of one NIC. NCCL registers the same buffers for every connection and
// registration is slow, so users of the same range of pages share one region.
class MrCache {
 public:
  explicit MrCache(rdma::Device* device) : device_(device) {}

  // Returns a region of pages that hold this range; the last release deregisters the region.
  absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> Get(const void* data, size_t bytes);
  // Registers a range of a dmabuf descriptor; such regions are not shared.
  absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> GetDmabuf(const void* data, size_t bytes,
                                                                uint64_t offset, int fd);

 private:
  struct Entry {
    uintptr_t end = 0;
    std::weak_ptr<rdma::MemoryRegion> region;
  };

  rdma::Device* const device_;
  Mutex mutex_;
  std::multimap<uintptr_t, Entry> entries_ REWIRE_GUARDED_BY(mutex_);  // by beginning
};

class Nic : private Workers::Work {
 public:
  static absl::StatusOr<std::shared_ptr<Nic>> Open(rdma::Driver* driver, const std::string& device,
                                                   const rdma::PortInfo& port);
  ~Nic() override;

  [[nodiscard]] const std::string& name() const { return name_; }  // "mlx5_0:1"
  [[nodiscard]] rdma::Device& device() const { return *device_; }
  [[nodiscard]] uint8_t port() const { return port_; }
  [[nodiscard]] uint32_t speed_mbps() const { return speed_mbps_; }
  [[nodiscard]] bool dmabuf();
  MrCache& memory() { return memory_; }
  absl::StatusOr<rdma::PortInfo> Query() const { return device_->QueryPort(port_); }
  // True if, as far as the device knows, the port has a link.
  [[nodiscard]] bool HasLink() const;

  // Lets a worker of the process read the device's events as they come. Call before the object is
  // shared; the call has no effect if the process has no workers.
  void WatchEvents();
  // Reads the device's pending events, unless a worker or another thread is reading them.
  void ReadEvents();
  // Counts how often the port has gone down or its device has failed; either ends the port's rails.
  [[nodiscard]] uint32_t downs() const { return downs_.load(std::memory_order_acquire); }
  // Counts the failures of completion queues. Failed() tells, once per failure, whether the given
  // completion queue has failed.
  [[nodiscard]] uint32_t faults() const { return faults_.load(std::memory_order_acquire); }
  [[nodiscard]] bool Failed(uint32_t completion_queue);

 private:
  Nic(std::shared_ptr<rdma::Device> device, const rdma::PortInfo& port);
  void Drive(size_t stream) override;
  // False: the device reports no events any more.
  bool TakeEvents();

  const std::shared_ptr<rdma::Device> device_;
  const uint8_t port_;
  const uint32_t speed_mbps_;
  const std::string name_;
  MrCache memory_;
  std::atomic<uint32_t> downs_{0};
  std::atomic<uint32_t> faults_{0};
  std::optional<uint64_t> worker_;
  std::atomic<bool> reading_{false};
  Mutex mutex_;
  std::set<uint32_t> failed_ REWIRE_GUARDED_BY(mutex_);  // completion queues
};

// The NICs that a connection may use on its side.
struct Nics {
  std::vector<std::shared_ptr<Nic>> all;
  size_t chosen = 0;  // chosen by NCCL, at the front; the others are fallbacks
};

}  // namespace rewire::net
