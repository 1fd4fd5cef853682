// The RDMA devices of this machine, for the net plugin and the state stream. Two implementations
// pass one contract suite: LoadVerbs() over libibverbs, and the tests' fake. Thread-safe,
// unless a comment says otherwise. Objects keep their parents alive: a queue pair its completion
// queues; completion queues, queue pairs and memory regions their device.
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

// Registered memory; the destructor deregisters it. From then on the device does not access the
// memory, neither for this side nor for a peer that still has the rkey.
class MemoryRegion {
 public:
  MemoryRegion() = default;
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;
  virtual ~MemoryRegion() = default;

  [[nodiscard]] virtual uint32_t lkey() const = 0;
  [[nodiscard]] virtual uint32_t rkey() const = 0;
  // Deregisters and returns the error, for a fence that must be certain. Call at most once.
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
  uint8_t port = 0;       // for port events
  uint32_t queue = 0;     // a queue pair's number or a completion queue's id
  std::string_view text;  // the library's name of the event
};

// An open device with one protection domain: keys of one Device are invalid in another Device.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  // The state when the device was opened.
  [[nodiscard]] virtual const DeviceInfo& info() const = 0;
  // The current state.
  [[nodiscard]] virtual absl::StatusOr<PortInfo> QueryPort(uint8_t port) = 0;

  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<CompletionQueue>> CreateCompletionQueue(
      uint32_t entries) = 0;
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(
      const QueuePairOptions& options) = 0;
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(void* address,
                                                                               size_t bytes,
                                                                               Access access) = 0;
  // Registers another device's memory by a dmabuf descriptor, which the caller continues to own.
  // Remote sides address its `offset` as `address`. Unimplemented if the library lacks support.
  [[nodiscard]] virtual absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterDmabuf(
      int fd, uint64_t offset, size_t bytes, uint64_t address, Access access) = 0;

  // Readable when ReadEvent has an event. Owned by this object; only one thread reads events.
  [[nodiscard]] virtual int event_fd() const = 0;
  // Never blocks; returns nothing if no event waits.
  [[nodiscard]] virtual absl::StatusOr<std::optional<DeviceEvent>> ReadEvent() = 0;
};

class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  virtual ~Driver() = default;

  // Lists the devices that can be opened, in the library's order. NotFound if there is none.
  [[nodiscard]] virtual absl::StatusOr<std::vector<DeviceInfo>> Devices() = 0;
  [[nodiscard]] virtual absl::StatusOr<std::shared_ptr<Device>> Open(std::string_view name) = 0;
};

// Opens the devices of this machine with libibverbs. NotFound if the library is not installed: a
// machine without RDMA is no fault.
[[nodiscard]] absl::StatusOr<std::unique_ptr<Driver>> LoadVerbs(
    const std::string& library = "libibverbs.so.1");

// "ibv_create_qp on mlx5_0: Cannot allocate memory", with the status code for the error number.
[[nodiscard]] absl::Status CallError(std::string_view call, std::string_view device, int error);

}  // namespace rewire::rdma
