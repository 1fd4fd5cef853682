// The RDMA devices of this machine, for the net plugin and the state stream. Two implementations
// pass one contract suite: the verbs library (verbs_driver.h) and the tests' fake. Everything here
// may be called from any thread, except where it says otherwise. What is made keeps alive what it
// was made from: a queue pair its completion queues, these and memory their device.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/rdma/port.h"
#include "reconfig/rdma/queue_pair.h"

namespace rewire::rdma {

// Registered memory. Deregistered when it goes: from then on the device touches it no more, neither
// for this side nor for a peer that still has the rkey.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  virtual ~MemoryRegion() = default;

  [[nodiscard]] virtual uint32_t lkey() const = 0;
  [[nodiscard]] virtual uint32_t rkey() const = 0;
  // The same with the reason when it fails, for a fence that must not be assumed. Once.
  [[nodiscard]] virtual absl::Status Deregister() = 0;
};

enum class DeviceEventKind : uint8_t {
  kPortActive,
  kPortDown,
  kGidChange,
  kAddressChange,  // LID, partition keys, subnet manager
  kDeviceFatal,
  kCompletionQueueError,
  kQueuePairError,
  kOther,
};

struct DeviceEvent {
  DeviceEventKind kind = DeviceEventKind::kOther;
  uint8_t port = 0;       // of port events
  uint32_t queue = 0;     // a queue pair's number or a completion queue's id
  std::string_view text;  // what the library calls it
};

// An open device with one protection domain: keys of one Device are worth nothing in another.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  // As it was when the device was opened.
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;
  // As it is now.
  [[nodiscard]] virtual absl::StatusOr<PortInfo> QueryPort(uint8_t port) = 0;

  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<CompletionQueue>> CreateCompletionQueue(
      uint32_t entries) = 0;
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(
      const QueuePairOptions& options) = 0;
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(void* address,
                                                                               size_t bytes,
                                                                               Access access) = 0;
  // Memory of another device behind a dmabuf descriptor, of which the caller stays the owner:
  // remote sides address its `offset` as `address`. Unimplemented where the library has it not.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterDmabuf(
      int fd, uint64_t offset, size_t bytes, uint64_t address, Access access) = 0;

  // Readable when ReadEvent has something. Of this object; one thread reads events.
  [[nodiscard]] virtual int event_fd() const = 0;
  // Never blocks; nothing when no event waits.
  [[nodiscard]] virtual absl::StatusOr<std::optional<DeviceEvent>> ReadEvent() = 0;
};

class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;

  // What can be opened, in the library's order. NotFound when there is nothing.
  [[nodiscard]] virtual absl::StatusOr<std::vector<DeviceInfo>> Devices() = 0;
  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<Device>> Open(std::string_view name) = 0;
};

// "ibv_create_qp on mlx5_0: Cannot allocate memory", with the code that goes with the number.
[[nodiscard]] absl::Status CallError(std::string_view call, std::string_view device, int error);

}  // namespace rewire::rdma
