#include "net_plugin/verbs/nic.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

// The speed of a port that does not report its speed.
constexpr uint32_t kDefaultMbps = 10000;

constexpr rdma::Access kAll = {
    .local_write = true, .remote_write = true, .remote_read = true, .relaxed_ordering = true};

}  // namespace

absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> MrCache::Get(const void* data, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = at / page * page;
  const uintptr_t end = (at + (bytes == 0 ? 1 : bytes) + page - 1) / page * page;
  MutexLock lock(&mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry.second.region.expired(); });
  for (auto e = entries_.begin(); e != entries_.end() && e->first <= begin; ++e) {
    if (e->second.end < end) continue;
    if (auto region = e->second.region.lock()) return region;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): rounded down to its page.
  auto made = device_->Register(reinterpret_cast<void*>(begin), end - begin, kAll);
  if (!made.ok()) return made.status();
  std::shared_ptr<rdma::MemoryRegion> region = *std::move(made);
  entries_.emplace(begin, Entry{end, region});
  return region;
}

absl::StatusOr<std::shared_ptr<rdma::MemoryRegion>> MrCache::GetDmabuf(const void* data,
                                                                       size_t bytes,
                                                                       uint64_t offset, int fd) {
  auto made = device_->RegisterDmabuf(fd, offset, bytes, reinterpret_cast<uintptr_t>(data), kAll);
  if (!made.ok()) return made.status();
  return std::shared_ptr<rdma::MemoryRegion>(*std::move(made));
}

Nic::Nic(std::shared_ptr<rdma::Device> device, const rdma::PortInfo& port)
    : device_(std::move(device)),
      port_(port.number),
      speed_mbps_(port.speed_mbps > 0 ? port.speed_mbps : kDefaultMbps),
      name_(absl::StrCat(device_->info().name, ":", port.number)),
      memory_(device_.get()) {}

absl::StatusOr<std::shared_ptr<Nic>> Nic::Open(rdma::Driver* driver, const std::string& device,
                                               const rdma::PortInfo& port) {
  auto opened = driver->Open(device);
  if (!opened.ok()) return opened.status();
  // The queue pair is a probe: some devices lack reliable connections.
  auto queue = (*opened)->CreateCompletionQueue(1);
  if (!queue.ok()) return queue.status();
  rdma::QueuePairOptions options;
  options.send_completions = options.receive_completions = *queue;
  if (auto pair = (*opened)->CreateQueuePair(options); !pair.ok()) return pair.status();
  return std::shared_ptr<Nic>(new Nic(*std::move(opened), port));
}

Nic::~Nic() {
  if (worker_) Workers::Get().Remove(*worker_);
}

bool Nic::HasLink() const {
  const absl::StatusOr<rdma::PortInfo> port = Query();
  return port.ok() && port->state == rdma::PortState::kActive;
}

bool Nic::dmabuf() {
  // The descriptor is invalid: only a device without dmabuf support answers Unimplemented.
  const auto refused = device_->RegisterDmabuf(-1, 0, 4096, 0, {});
  return refused.status().code() != absl::StatusCode::kUnimplemented;
}

void Nic::WatchEvents() {
  if (!Workers::Get().ok()) return;
  worker_ = Workers::Get().Add(device_->event_fd(), EPOLLIN, this, 0);
  Workers::Get().Arm(*worker_);
}

void Nic::Drive(size_t /*stream*/) {
  if (TakeEvents()) Workers::Get().Arm(*worker_);
}

void Nic::ReadEvents() {
  if (worker_ || reading_.exchange(true, std::memory_order_acquire)) return;
  TakeEvents();
  reading_.store(false, std::memory_order_release);
}

bool Nic::TakeEvents() {
  for (;;) {
    const auto event = device_->ReadEvent();
    if (!event.ok() || !event->has_value()) return event.ok();
    const rdma::DeviceEvent& e = **event;
    const bool ours = e.kind == rdma::DeviceEventKind::kDeviceFatal ||
                      (e.kind == rdma::DeviceEventKind::kPortDown && e.port == port_);
    if (ours) {
      REWIRE_WARN("net plugin: %s: %s", name_.c_str(), std::string(e.text).c_str());
      downs_.fetch_add(1, std::memory_order_release);
    } else if (e.kind == rdma::DeviceEventKind::kCompletionQueueError) {
      MutexLock lock(&mutex_);
      failed_.insert(e.queue);
      faults_.fetch_add(1, std::memory_order_release);
    }
  }
}

bool Nic::Failed(uint32_t completion_queue) {
  MutexLock lock(&mutex_);
  return failed_.erase(completion_queue) > 0;
}

}  // namespace rewire::net
