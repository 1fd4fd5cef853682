// The plugin in this process: its devices and what they share. Made at the first init, stays for
// ever: NCCL may unload and load the plugin between communicators. Any thread.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/core/interfaces.h"
#include "net_plugin/socket/links.h"
#include "net_plugin/verbs/adapter.h"
#include "reconfig/base/mutex.h"

namespace rewire::net {

class Net {
 public:
  // With this process's settings; the failure is the same every time.
  static absl::StatusOr<Net*> Get();

  [[nodiscard]] int devices() const;
  absl::StatusOr<DeviceProperties> Properties(int device) const;
  // One device of several RDMA ports; the same again for the same ports.
  absl::StatusOr<int> MakeVirtual(std::span<const int> devices);
  // handle: NCCL's kHandleBytes, in which the connecting side finds what it needs.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(int device, void* handle);
  // Null: not yet.
  absl::StatusOr<std::unique_ptr<Sender>> Connect(int device, void* handle);
  // Said once in a process.
  void SayStart(int abi, Logger log);
  [[nodiscard]] NetCounters counters() const;

 private:
  struct Device {
    const Interface* interface = nullptr;  // of sockets
    std::unique_ptr<Adapter> adapter;      // of RDMA
    int support = kPtrHost;
    std::string pci_path;
    std::vector<int> parts;  // of a virtual device
  };

  Net(std::vector<Interface> interfaces, const Key& key, std::vector<std::shared_ptr<Nic>> nics);
  static absl::StatusOr<std::unique_ptr<Net>> Make();
  void Add(const std::vector<std::shared_ptr<Nic>>& nics, std::vector<int> parts)
      REWIRE_REQUIRES(mutex_);
  // Devices are added, and stay.
  absl::StatusOr<const Device*> At(int device) const;
  [[nodiscard]] int StreamsOf(const Interface& interface) const;
  static DeviceProperties OfSockets(const Interface& interface);
  static DeviceProperties OfRdma(const Device& device);
  [[nodiscard]] std::string Describe() const;

  const std::vector<Interface> interfaces_;
  const int streams_;  // 0: by the interface's speed
  Links links_;
  const ConnectionOptions options_;                // of RDMA
  const std::vector<std::shared_ptr<Nic>> ports_;  // all that may be used
  mutable Mutex mutex_;
  std::deque<Device> devices_ REWIRE_GUARDED_BY(mutex_);
  std::atomic<bool> said_{false};
};

}  // namespace rewire::net
