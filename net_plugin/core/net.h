// The plugin in this process: its devices and what they share. Made at the first init, stays for
// ever: NCCL may unload and load the plugin between communicators. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "net_plugin/core/comm.h"
#include "net_plugin/core/interfaces.h"
#include "net_plugin/socket/links.h"

namespace rewire::net {

class Net {
 public:
  // With this process's settings; the failure is the same every time.
  static absl::StatusOr<Net*> Get();

  [[nodiscard]] int devices() const { return static_cast<int>(interfaces_.size()); }
  absl::StatusOr<DeviceProperties> Properties(int device) const;
  // handle: NCCL's kHandleBytes, in which the connecting side finds what it needs.
  absl::StatusOr<std::unique_ptr<Listener>> Listen(int device, void* handle);
  // Null: not yet.
  absl::StatusOr<std::unique_ptr<Sender>> Connect(int device, void* handle);
  // Said once in a process.
  void SayStart(int abi, Logger log);
  [[nodiscard]] NetCounters counters() const { return links_.counters(); }

 private:
  Net(std::vector<Interface> interfaces, uint64_t key);
  static absl::StatusOr<std::unique_ptr<Net>> Make();
  absl::StatusOr<const Interface*> At(int device) const;
  [[nodiscard]] int StreamsOf(const Interface& interface) const;

  const std::vector<Interface> interfaces_;
  const int streams_;  // 0: by the interface's speed
  Links links_;
  std::atomic<bool> said_{false};
};

}  // namespace rewire::net
