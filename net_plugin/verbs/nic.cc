#include "net_plugin/verbs/nic.h"

#include <sys/epoll.h>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

// The speed of a port that does not report its speed.
constexpr uint32_t kDefaultMbps = 10000;

}  // namespace

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
  // Some devices lack reliable connections.
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

bool Nic::Works() const {
  const absl::StatusOr<rdma::PortInfo> port = Query();
  return port.ok() && port->state == rdma::PortState::kActive;
}

bool Nic::dmabuf() {
  // An invalid descriptor: only a device without dmabuf support answers Unimplemented.
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
