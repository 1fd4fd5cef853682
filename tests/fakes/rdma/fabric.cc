#include "tests/fakes/rdma/fabric.h"

#include "tests/fakes/rdma/endpoint.h"
#include "tests/fakes/rdma/fake_driver.h"

namespace rewire::rdma::fake {
namespace {

std::vector<GidEntry> DefaultGids(LinkLayer link_layer, uint32_t host) {
  const auto low = static_cast<uint8_t>(host);
  Gid local;
  local.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0xff, 0xfe, 0, 0, low};
  if (link_layer != LinkLayer::kEthernet) return {{0, local, GidType::kInfiniBand, 0}};
  const Gid ipv4 = Gid::OfIpv4(10, 0, 0, low);
  const uint32_t interface = 100 + host;
  return {{0, local, GidType::kRoceV1, interface},
          {1, local, GidType::kRoceV2, interface},
          {2, ipv4, GidType::kRoceV1, interface},
          {3, ipv4, GidType::kRoceV2, interface}};
}

}  // namespace

void Fabric::AddDevice(const DeviceSpec& spec) {
  MutexLock lock(&core_->mutex);
  const uint32_t number = core_->network.nodes() + 1;  // at most 255 nodes
  Node node;
  node.latency = spec.latency;
  node.max_inline = spec.max_inline;
  node.ece = spec.ece;
  DeviceInfo& info = node.info;
  info.name = spec.name;
  info.pci_path = "/sys/devices/pci0000:00/0000:00:" + std::to_string(number) + ".0";
  info.guid = 0xfa4e'0000'0000'0000 + number;
  info.max_queue_pairs = 1 << 17;
  info.max_work_requests = spec.max_work_requests;
  info.max_segments = 30;
  info.max_completions = spec.max_completions;
  info.max_reads = 16;
  PortInfo port;
  port.state = PortState::kActive;
  port.link_layer = spec.link_layer;
  port.active_mtu = spec.mtu;
  port.speed_mbps = spec.speed_mbps;
  if (spec.link_layer == LinkLayer::kInfiniBand) port.lid = static_cast<uint16_t>(number);
  port.gids = spec.gids.empty() ? DefaultGids(spec.link_layer, number) : spec.gids;
  port.pkeys = {0xffff};
  info.ports = {port};
  core_->network.AddNode(std::move(node));
}

std::unique_ptr<Driver> Fabric::MakeDriver(std::vector<std::string> devices) {
  return std::make_unique<FakeDriver>(core_, std::move(devices));
}

void Fabric::Advance(Duration duration) {
  MutexLock lock(&core_->mutex);
  core_->network.Run(duration);
}

Time Fabric::now() {
  MutexLock lock(&core_->mutex);
  return core_->network.now();
}

uint64_t Fabric::digest() {
  MutexLock lock(&core_->mutex);
  return core_->network.digest();
}

void Fabric::SetLinkUp(std::string_view device, bool up) {
  MutexLock lock(&core_->mutex);
  Node& node = *core_->network.Find(device);
  const PortState state = up ? PortState::kActive : PortState::kDown;
  if (node.port().state == state) return;
  node.port().state = state;
  node.TellAll(up ? DeviceEvent{DeviceEventKind::kPortActive, 1, 0, "port active"}
                  : DeviceEvent{DeviceEventKind::kPortDown, 1, 0, "port error"});
}

void Fabric::SetSpeed(std::string_view device, uint32_t mbps) {
  MutexLock lock(&core_->mutex);
  core_->network.Find(device)->port().speed_mbps = mbps;
}

void Fabric::SetLatency(std::string_view device, Duration latency) {
  MutexLock lock(&core_->mutex);
  core_->network.Find(device)->latency = latency;
}

void Fabric::SetLoss(std::string_view device, uint32_t per_million) {
  MutexLock lock(&core_->mutex);
  core_->network.Find(device)->loss_per_million = per_million;
}

void Fabric::Hold(std::string_view device) {
  MutexLock lock(&core_->mutex);
  core_->network.Find(device)->held = true;
}

void Fabric::Release(std::string_view device) {
  MutexLock lock(&core_->mutex);
  Node& node = *core_->network.Find(device);
  node.held = false;
  core_->network.Release(node);
}

void Fabric::SetGids(std::string_view device, std::vector<GidEntry> gids) {
  MutexLock lock(&core_->mutex);
  Node& node = *core_->network.Find(device);
  node.port().gids = std::move(gids);
  node.TellAll({DeviceEventKind::kGidChange, 1, 0, "GID table change"});
}

void Fabric::OverrunCompletions(std::string_view device) {
  MutexLock lock(&core_->mutex);
  for (const auto& [number, endpoint] : core_->network.Find(device)->endpoints) {
    endpoint->OverrunCompletions();
  }
}

void Fabric::FailDevice(std::string_view device) {
  MutexLock lock(&core_->mutex);
  Node& node = *core_->network.Find(device);
  node.failed = true;
  node.port().state = PortState::kDown;
  for (const auto& [number, endpoint] : node.endpoints) endpoint->EnterError();
  node.TellAll({DeviceEventKind::kDeviceFatal, 0, 0, "device fatal"});
}

}  // namespace rewire::rdma::fake
