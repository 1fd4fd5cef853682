// One port of an RDMA device, opened: its memory cache and what it says of itself. It is shared by
// all connections that use it and lives as long as the last of them. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/socket/workers.h"
#include "net_plugin/verbs/mr_cache.h"
#include "reconfig/base/mutex.h"
#include "reconfig/rdma/driver.h"

namespace rewire::net {

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
  // It has a link, as far as it knows.
  [[nodiscard]] bool Works() const;

  // A worker of the process reads the device's events from now on, when they come. Called before
  // the object is shared; without effect where the process has no workers.
  void WatchEvents();
  // Takes what the device has to tell, unless a worker or another thread does.
  void ReadEvents();
  // How often the port has gone down, or its device has failed; a change ends what was on it.
  [[nodiscard]] uint32_t downs() const { return downs_.load(std::memory_order_acquire); }
  // How many queues have failed; whether these are among them.
  [[nodiscard]] uint32_t faults() const { return faults_.load(std::memory_order_acquire); }
  [[nodiscard]] bool Failed(uint32_t completion_queue);

 private:
  Nic(std::shared_ptr<rdma::Device> device, const rdma::PortInfo& port);
  void Drive(size_t stream) override;
  // False: the device tells nothing any more.
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

// Those that a connection may use on its side.
struct Nics {
  std::vector<std::shared_ptr<Nic>> all;
  size_t chosen = 0;  // by NCCL: the first ones; the others stand in when none of these works
};

}  // namespace rewire::net
