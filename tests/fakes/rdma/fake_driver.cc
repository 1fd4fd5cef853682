#include "tests/fakes/rdma/fake_driver.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "tests/fakes/rdma/fake_queues.h"

namespace rewire::rdma::fake {
namespace {

class FakeMemory final : public MemoryRegion {
 public:
  // `mapped` bytes that end with the region were mapped for this object; 0: the caller owns the
  // memory.
  FakeMemory(std::shared_ptr<FakeDevice> device, const Region& region, size_t mapped)
      : device_(std::move(device)), region_(region), mapped_(mapped) {}
  ~FakeMemory() override {
    if (!gone_) (void)Deregister();
  }
  [[nodiscard]] uint32_t lkey() const override { return region_.lkey; }
  [[nodiscard]] uint32_t rkey() const override { return region_.rkey; }
  absl::Status Deregister() override {
    if (std::exchange(gone_, true))
      return absl::FailedPreconditionError("ibv_dereg_mr: the memory is already deregistered");
    MutexLock lock(&device_->core().mutex);
    for (const auto& [number, endpoint] : device_->node().endpoints) {
      endpoint->EndRegion(region_.lkey);
    }
    device_->node().memory.Remove(region_.lkey);
    if (mapped_ > 0) ::munmap(region_.host + region_.bytes - mapped_, mapped_);
    return absl::OkStatus();
  }

 private:
  const std::shared_ptr<FakeDevice> device_;
  const Region region_;
  const size_t mapped_;
  bool gone_ = false;
};

}  // namespace

absl::StatusOr<std::vector<DeviceInfo>> FakeDriver::Devices() {
  MutexLock lock(&core_->mutex);
  std::vector<DeviceInfo> infos;
  for (const std::string& name : devices_) {
    if (const Node* node = core_->network.Find(name)) infos.push_back(node->info);
  }
  if (infos.empty()) return absl::NotFoundError("this machine has no RDMA device");
  return infos;
}

absl::StatusOr<std::shared_ptr<Device>> FakeDriver::Open(std::string_view name) {
  MutexLock lock(&core_->mutex);
  Node* node = core_->network.Find(name);
  if (node == nullptr || std::find(devices_.begin(), devices_.end(), name) == devices_.end()) {
    return absl::NotFoundError(
        absl::StrCat("open RDMA device ", std::string(name), ": no such device"));
  }
  auto device = std::make_shared<FakeDevice>(core_, node, node->info, core_->network.NextNumber());
  return std::shared_ptr<Device>(std::move(device));
}

// FakeDriver::Open calls this constructor under the lock.
FakeDevice::FakeDevice(std::shared_ptr<Core> core, Node* node, const DeviceInfo& info,
                       uint32_t domain)
    : core_(std::move(core)), node_(node), info_(info) {
  opened_.domain = domain;
  opened_.event_fd.reset(::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC));
  node_->opened.push_back(&opened_);
}

FakeDevice::~FakeDevice() {
  MutexLock lock(&core_->mutex);
  std::erase(node_->opened, &opened_);
}

absl::StatusOr<PortInfo> FakeDevice::QueryPort(uint8_t port) {
  MutexLock lock(&core_->mutex);
  if (port != 1) return Error("ibv_query_port", EINVAL);
  return node_->port();
}

absl::StatusOr<std::shared_ptr<CompletionQueue>> FakeDevice::CreateCompletionQueue(
    uint32_t entries) {
  MutexLock lock(&core_->mutex);
  if (node_->failed) return Error("ibv_create_cq", EIO);
  if (entries == 0 || entries > info_.max_completions) return Error("ibv_create_cq", EINVAL);
  auto ring = std::make_shared<CompletionRing>(core_->network.NextNumber(), entries, &opened_);
  return std::make_shared<FakeCompletionQueue>(shared_from_this(), std::move(ring));
}

absl::StatusOr<std::unique_ptr<QueuePair>> FakeDevice::CreateQueuePair(
    const QueuePairOptions& options) {
  const auto* send = dynamic_cast<FakeCompletionQueue*>(options.send_completions.get());
  const auto* receive = dynamic_cast<FakeCompletionQueue*>(options.receive_completions.get());
  if (send == nullptr || receive == nullptr || send->device() != this ||
      receive->device() != this || options.max_send > info_.max_work_requests ||
      options.max_receive > info_.max_work_requests || options.max_segments > info_.max_segments ||
      options.max_inline > node_->max_inline) {
    return Error("ibv_create_qp", EINVAL);
  }
  MutexLock lock(&core_->mutex);
  if (node_->failed) return Error("ibv_create_qp", EIO);
  auto endpoint =
      std::make_shared<Endpoint>(&core_->network, node_, &opened_,
                                 EndpointOptions{options.max_send, options.max_receive,
                                                 options.max_segments, options.max_inline},
                                 send->ring(), receive->ring());
  endpoint->ece = node_->ece;
  return std::make_unique<FakeQueuePair>(shared_from_this(), options, std::move(endpoint));
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> FakeDevice::Add(char* host, uint64_t base,
                                                              size_t bytes, Access access,
                                                              size_t mapped) {
  MutexLock lock(&core_->mutex);
  if (node_->failed) return Error("ibv_reg_mr", EIO);
  access.local_write |= access.remote_write;
  const Region& region = node_->memory.Add({opened_.domain, base, bytes, host, access},
                                           core_->network.random().Next());
  return std::make_unique<FakeMemory>(shared_from_this(), region, mapped);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> FakeDevice::Register(void* address, size_t bytes,
                                                                   Access access) {
  if (address == nullptr) return Error("ibv_reg_mr", EFAULT);
  return Add(static_cast<char*>(address), reinterpret_cast<uintptr_t>(address), bytes, access, 0);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> FakeDevice::RegisterDmabuf(int fd, uint64_t offset,
                                                                         size_t bytes,
                                                                         uint64_t address,
                                                                         Access access) {
  const size_t mapped = offset + bytes;
  void* memory = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return Error("ibv_reg_dmabuf_mr", errno);
  return Add(static_cast<char*>(memory) + offset, address, bytes, access, mapped);
}

absl::StatusOr<std::optional<DeviceEvent>> FakeDevice::ReadEvent() {
  MutexLock lock(&core_->mutex);
  uint64_t one = 0;
  if (opened_.events.empty()) return std::nullopt;
  if (::read(opened_.event_fd.get(), &one, sizeof one) < 0) return Error("read", errno);
  const DeviceEvent event = opened_.events.front();
  opened_.events.pop_front();
  return event;
}

}  // namespace rewire::rdma::fake
