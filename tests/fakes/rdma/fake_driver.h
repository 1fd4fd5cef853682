// The interface of reconfig/rdma/driver.h over the fabric's model. The driver takes the lock, steps
// the clock at each poll, and converts error numbers to statuses. Made by Fabric; thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/rdma/fabric.h"

namespace rewire::rdma::fake {

class FakeDriver : public Driver {
 public:
  FakeDriver(std::shared_ptr<Core> core, std::vector<std::string> devices)
      : core_(std::move(core)), devices_(std::move(devices)) {}
  absl::StatusOr<std::vector<DeviceInfo>> Devices() override;
  absl::StatusOr<std::shared_ptr<Device>> Open(std::string_view name) override;

 private:
  const std::shared_ptr<Core> core_;
  const std::vector<std::string> devices_;
};

class FakeDevice : public Device, public std::enable_shared_from_this<FakeDevice> {
 public:
  // `node` is valid until the core is destroyed.
  FakeDevice(std::shared_ptr<Core> core, Node* node, const DeviceInfo& info, uint32_t domain);
  ~FakeDevice() override;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<PortInfo> QueryPort(uint8_t port) override;
  absl::StatusOr<std::shared_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t entries) override;
  absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(
      const QueuePairOptions& options) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(void* address, size_t bytes,
                                                         Access access) override;
  // Accepts any descriptor that can be mapped, for example a memfd.
  absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterDmabuf(int fd, uint64_t offset,
                                                               size_t bytes, uint64_t address,
                                                               Access access) override;
  [[nodiscard]] int event_fd() const override { return opened_.event_fd.get(); }
  absl::StatusOr<std::optional<DeviceEvent>> ReadEvent() override;

  [[nodiscard]] Core& core() { return *core_; }
  [[nodiscard]] Node& node() { return *node_; }
  [[nodiscard]] absl::Status Error(std::string_view call, int error) const {
    return CallError(call, info_.name, error);
  }

 private:
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Add(char* host, uint64_t base, size_t bytes,
                                                    Access access, size_t mapped);

  const std::shared_ptr<Core> core_;
  Node* const node_;
  const DeviceInfo info_;
  Opened opened_;
};

}  // namespace rewire::rdma::fake
