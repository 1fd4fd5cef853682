// The net plugin in this process: its devices and their shared state. The first init creates the
// object, which then exists until the process ends, because NCCL may unload and reload the plugin
// between communicators. Thread-safe.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/plugin/interfaces.h"
#include "net_plugin/socket/links.h"
#include "net_plugin/transport/comm.h"
#include "net_plugin/verbs/adapter.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Net {
 public:
  // Creates the plugin from this process's settings; a failure repeats on every call.
  static absl::StatusOr<Net*> Get();

  [[nodiscard]] int devices() const;
  absl::StatusOr<DeviceProperties> Properties(int device) const;
  // Joins several RDMA ports into one device; the same ports give the same device again.
  absl::StatusOr<int> MakeVirtual(std::span<const int> devices);
  // Writes the listener's address for the connecting side into `handle` (kHandleBytes).
  absl::StatusOr<std::unique_ptr<Listener>> Listen(int device, void* handle);
  // Returns null while the connection is not established yet.
  absl::StatusOr<std::unique_ptr<Sender>> Connect(int device, void* handle);
  // Logs the start line once per process.
  void LogStart(int abi, Logger log);

 private:
  struct Device {
    const Interface* interface = nullptr;  // socket device
    std::unique_ptr<Adapter> adapter;      // RDMA device
    int support = kPtrHost;
    std::string pci_path;
    std::vector<int> parts;  // the ports of a virtual device
  };

  Net(std::vector<Interface> interfaces, const Key& key, std::vector<std::shared_ptr<Nic>> nics);
  static absl::StatusOr<std::unique_ptr<Net>> Make();
  void Add(const std::vector<std::shared_ptr<Nic>>& nics, std::vector<int> parts)
      REWIRE_REQUIRES(mutex_);
  // The pointer stays valid: devices are added but never removed.
  absl::StatusOr<const Device*> At(int device) const;
  [[nodiscard]] int StreamsOf(const Interface& interface) const;
  static DeviceProperties OfSockets(const Interface& interface);
  static DeviceProperties OfRdma(const Device& device);
  [[nodiscard]] std::string Describe() const;

  const std::vector<Interface> interfaces_;
  const int streams_;  // 0: by the interface's speed
  Links links_;
  const ConnectionOptions options_;                // RDMA only
  const std::vector<std::shared_ptr<Nic>> ports_;  // all usable ports
  mutable Mutex mutex_;
  std::deque<Device> devices_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<bool> said_{false};
};

}  // namespace rewire::net
