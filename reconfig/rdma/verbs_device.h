// The verbs driver's open device with its protection domain. Threads: see Device.
#pragma once

#include <atomic>
#include <memory>

#include "reconfig/rdma/driver.h"
#include "reconfig/rdma/verbs_library.h"

namespace rewire::rdma {

class VerbsDevice : public Device, public std::enable_shared_from_this<VerbsDevice> {
 public:
  [[nodiscard]] static absl::StatusOr<std::shared_ptr<VerbsDevice>> Open(
      std::shared_ptr<const VerbsLibrary> library, ibv_device* device);
  ~VerbsDevice() override;

  [[nodiscard]] const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<PortInfo> QueryPort(uint8_t port) override;
  absl::StatusOr<std::shared_ptr<CompletionQueue>> CreateCompletionQueue(uint32_t entries) override;
  absl::StatusOr<std::unique_ptr<QueuePair>> CreateQueuePair(
      const QueuePairOptions& options) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(void* address, size_t bytes,
                                                         Access access) override;
  absl::StatusOr<std::unique_ptr<MemoryRegion>> RegisterDmabuf(int fd, uint64_t offset,
                                                               size_t bytes, uint64_t address,
                                                               Access access) override;
  [[nodiscard]] int event_fd() const override { return context_->async_fd; }
  absl::StatusOr<std::optional<DeviceEvent>> ReadEvent() override;

  [[nodiscard]] const VerbsLibrary& library() const { return *library_; }
  [[nodiscard]] absl::Status Error(std::string_view call, int error) const {
    return CallError(call, info_.name, error);
  }

 private:
  VerbsDevice(std::shared_ptr<const VerbsLibrary> library, ibv_context* context)
      : library_(std::move(library)), context_(context) {}

  const std::shared_ptr<const VerbsLibrary> library_;
  ibv_context* const context_;
  ibv_pd* pd_ = nullptr;
  DeviceInfo info_;
  std::atomic<uint32_t> queues_{0};  // number of queues made so far, the source of their ids
};

// Converts to the verbs' access flags.
[[nodiscard]] int AccessFlags(Access access);

}  // namespace rewire::rdma
