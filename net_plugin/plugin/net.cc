#include "net_plugin/plugin/net.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "net_plugin/plugin/rdma_ports.h"
#include "net_plugin/socket/address.h"
#include "net_plugin/socket/socket_receiver.h"
#include "net_plugin/socket/socket_sender.h"
#include "net_plugin/socket/workers.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"

namespace rewire::net {
namespace {

constexpr int kNcclInfo = 3;
constexpr unsigned long kNcclInitNet = 1 | 16;  // the subsystems INIT and NET
// NCCL assumes this speed for an interface that does not report its speed.
constexpr int kDefaultMbps = 10000;
constexpr size_t kMostMessageBytes = size_t{1} << 30;

absl::StatusOr<Key> JobKey() {
  const std::string& text = Settings::Get().net_key();
  if (text.empty()) return Key{};
  if (const std::optional<Key> key = KeyOfHex(text)) return *key;
  return absl::InvalidArgumentError(
      absl::StrCat("REWIRE_NET_KEY: characters=", text.size(),
                   ": must be 32 to 64 hexadecimal digits, not all zero"));
}

// Tells whether NVIDIA's kernel driver lets RDMA devices register GPU memory by address.
bool PeerMemory() {
  struct stat found {};
  return stat("/sys/module/nvidia_peermem/version", &found) == 0 ||
         stat("/sys/kernel/mm/memory_peers/nv_mem/version", &found) == 0;
}

}  // namespace

Net::Net(std::vector<Interface> interfaces, const Key& key, std::vector<std::shared_ptr<Nic>> nics)
    : interfaces_(std::move(interfaces)),
      streams_(static_cast<int>(Settings::Get().net_sockets())),
      links_(LinksOptions{key}),
      options_(OptionsFromSettings()),
      ports_(std::move(nics)) {
  MutexLock lock(&mutex_);
  for (const std::shared_ptr<Nic>& nic : ports_) Add({nic}, {});
  if (!ports_.empty()) return;
  for (const Interface& i : interfaces_) {
    Device& d = devices_.emplace_back();
    d.interface = &i;
    d.pci_path = i.pci_path;
  }
}

absl::StatusOr<std::unique_ptr<Net>> Net::Make() {
  absl::StatusOr<std::vector<Interface>> all = ListInterfaces();
  if (!all.ok()) return all.status();
  absl::StatusOr<std::vector<Interface>> chosen = Choose(*all, RulesFromEnvironment());
  if (!chosen.ok()) return chosen.status();
  const absl::StatusOr<Key> key = JobKey();
  if (!key.ok()) return key.status();
  absl::StatusOr<std::vector<std::shared_ptr<Nic>>> nics = OpenPorts();
  if (!nics.ok()) {
    const std::string why(nics.status().message());
    if (Settings::Get().net_require() == "verbs") {
      return absl::NotFoundError(
          absl::StrCat("open RDMA devices (REWIRE_NET_REQUIRE=verbs): ", why));
    }
    REWIRE_INFO("net plugin: sockets are used instead of RDMA: %s", why.c_str());
    nics = std::vector<std::shared_ptr<Nic>>();
  }
  return std::unique_ptr<Net>(new Net(*std::move(chosen), *key, *std::move(nics)));
}

absl::StatusOr<Net*> Net::Get() {
  static auto* const net = new absl::StatusOr<std::unique_ptr<Net>>(Make());
  if (!net->ok()) return net->status();
  return (*net)->get();
}

void Net::Add(const std::vector<std::shared_ptr<Nic>>& nics, std::vector<int> parts) {
  Device& d = devices_.emplace_back();
  d.support = kPtrHost;
  const bool dmabuf =
      std::all_of(nics.begin(), nics.end(), [](const auto& n) { return n->dmabuf(); });
  if (dmabuf) d.support |= kPtrDmabuf;
  if (PeerMemory()) d.support |= kPtrCuda;
  d.pci_path = nics[0]->device().info().pci_path;
  d.parts = std::move(parts);
  // Each device's fallback list begins with the next port, so that the traffic of several failed
  // ports is spread. On two identical hosts, both sides of a link choose the same fallback port.
  std::vector<std::shared_ptr<Nic>> others = ports_;
  std::rotate(others.begin(), std::find(others.begin(), others.end(), nics.back()), others.end());
  std::erase_if(others, [&](const auto& other) {
    return std::find(nics.begin(), nics.end(), other) != nics.end();
  });
  d.adapter = std::make_unique<Adapter>(nics, others, interfaces_[0].address, &links_, options_);
}

int Net::devices() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(devices_.size());
}

absl::StatusOr<const Net::Device*> Net::At(int device) const {
  MutexLock lock(&mutex_);
  if (device < 0 || static_cast<size_t>(device) >= devices_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("device=", device, ": must be 0 to ", static_cast<int>(devices_.size()) - 1));
  }
  return &devices_[static_cast<size_t>(device)];
}

absl::StatusOr<int> Net::MakeVirtual(std::span<const int> devices) {
  std::vector<std::shared_ptr<Nic>> nics;
  for (const int device : devices) {
    const absl::StatusOr<const Device*> at = At(device);
    if (!at.ok()) return at.status();
    if ((*at)->adapter == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat(
          "device=", device, ": must be an RDMA device to be part of a virtual device"));
    }
    for (const std::shared_ptr<Nic>& nic : (*at)->adapter->nics()) nics.push_back(nic);
  }
  if (nics.empty() || nics.size() > kMostRails) {
    return absl::InvalidArgumentError(
        absl::StrCat("ports=", nics.size(), ": must be 1 to ", kMostRails));
  }
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].adapter->nics() == nics) return static_cast<int>(i);
  }
  Add(nics, {devices.begin(), devices.end()});
  return static_cast<int>(devices_.size()) - 1;
}

// Uses several streams if one connection cannot fill the wire, or if the speed is unknown.
int Net::StreamsOf(const Interface& interface) const {
  if (!Workers::Get().ok()) return 1;
  if (streams_ > 0) return streams_;
  const int mbps = interface.speed_mbps;
  if (mbps == 0) return 2;
  return mbps <= kDefaultMbps ? 1 : std::clamp(mbps / 25000 + 1, 2, 8);
}

DeviceProperties Net::OfSockets(const Interface& i) {
  DeviceProperties p{};
  p.name = i.name.c_str();
  p.speed_mbps = i.speed_mbps > 0 ? i.speed_mbps : kDefaultMbps;
  p.max_comms = 65536;
  p.max_recvs = 1;
  return p;
}

DeviceProperties Net::OfRdma(const Device& device) {
  const Adapter& a = *device.adapter;
  const rdma::DeviceInfo& first = a.nics()[0]->device().info();
  DeviceProperties p{};
  p.name = a.name().c_str();
  p.guid = first.guid;
  p.port = a.nics()[0]->port();
  for (const std::shared_ptr<Nic>& nic : a.nics()) {
    p.speed_mbps += static_cast<int>(nic->speed_mbps());
  }
  p.max_comms = static_cast<int>(std::min(first.max_queue_pairs, 1U << 20));
  p.max_recvs = kMaxRecvs;
  p.reg_is_global = 1;
  return p;
}

absl::StatusOr<DeviceProperties> Net::Properties(int device) const {
  const absl::StatusOr<const Device*> at = At(device);
  if (!at.ok()) return at.status();
  const Device& d = **at;
  DeviceProperties p = d.adapter == nullptr ? OfSockets(*d.interface) : OfRdma(d);
  if (d.adapter == nullptr) p.guid = static_cast<uint64_t>(device);
  p.pci_path = d.pci_path.empty() ? nullptr : d.pci_path.c_str();
  p.ptr_support = d.support;
  p.latency_us = 0;  // NCCL has its own default for networks
  p.device_count = 1;
  p.devices[0] = device;
  if (!d.parts.empty()) {
    p.device_count = static_cast<int>(d.parts.size());
    std::copy(d.parts.begin(), d.parts.end(), p.devices);
  }
  p.max_message_bytes = kMostMessageBytes;
  p.rail = p.plane = -1;
  return p;
}

absl::StatusOr<std::unique_ptr<Listener>> Net::Listen(int device, void* handle) {
  const absl::StatusOr<const Device*> at = At(device);
  if (!at.ok()) return at.status();
  Adapter* const adapter = (*at)->adapter.get();
  const absl::StatusOr<ListenAddress> address =
      adapter != nullptr ? adapter->Listen() : links_.Listen((*at)->interface->address);
  if (!address.ok()) return address.status();
  EncodeAddress(*address, handle);
  if (adapter != nullptr) return adapter->MakeListener(address->listener);
  return std::make_unique<SocketListener>(address->listener, &links_);
}

absl::StatusOr<std::unique_ptr<Sender>> Net::Connect(int device, void* handle) {
  const absl::StatusOr<const Device*> at = At(device);
  if (!at.ok()) return at.status();
  absl::StatusOr<ListenAddress> address = DecodeAddress(handle);
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("decode the peer's handle: ", std::string(address.status().message()),
                     " (all members must load the same network plugin)"));
  }
  Adapter* const adapter = (*at)->adapter.get();
  if ((adapter != nullptr) != (address->device != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("peer ", AddressText(address->address), ": this side uses ",
                     adapter != nullptr ? "RDMA" : "sockets", " and the peer uses ",
                     adapter != nullptr ? "sockets" : "RDMA",
                     " (REWIRE_NET_REQUIRE=verbs on all members names the member without RDMA; "
                     "NCCL_IB_DISABLE=1 makes all members use sockets)"));
  }
  if (adapter != nullptr) {
    absl::StatusOr<std::unique_ptr<Sender>> sender = adapter->Connect(&*address);
    EncodeAddress(*address, handle);
    return sender;
  }
  const Interface& interface = *(*at)->interface;
  absl::StatusOr<std::unique_ptr<Link>> link =
      links_.Connect(interface.address, StreamsOf(interface), &*address);
  if (!link.ok()) return link.status();
  EncodeAddress(*address, handle);
  if (*link == nullptr) return nullptr;
  // Without a configured number of streams, the sender measures whether several are faster.
  return std::make_unique<SocketSender>(*std::move(link), &links_,
                                        streams_ > 0 ? Splitting::kAll : Splitting::kMeasured);
}

std::string Net::Describe() const {
  MutexLock lock(&mutex_);
  std::string out;
  for (const Device& d : devices_) {
    absl::StrAppend(&out, out.empty() ? "" : ", ");
    if (d.adapter != nullptr) {
      absl::StrAppend(&out, d.adapter->name(), " (", d.adapter->nics()[0]->speed_mbps(), " Mbit/s",
                      (d.support & kPtrDmabuf) != 0 ? ", dmabuf" : "", ")");
      continue;
    }
    const int mbps = d.interface->speed_mbps;
    absl::StrAppend(&out, d.interface->name, " at ", HostText(d.interface->address), " (",
                    mbps > 0 ? absl::StrCat(mbps, " Mbit/s") : "speed unknown", ", ",
                    StreamsOf(*d.interface), " sockets)");
  }
  const char* const chosen = RulesFromEnvironment().named()
                                 ? ""
                                 : ", chosen as NCCL does because NCCL_SOCKET_IFNAME is not set";
  if (devices_[0].adapter == nullptr) return absl::StrCat("sockets over ", out, chosen);
  const Settings& s = Settings::Get();
  return absl::StrCat("RDMA over ", out, ", ", s.net_queue_pairs(),
                      " queue pairs per rail, timeout ", s.net_timeout(), ", retries ",
                      s.net_retries(), ", control over ", interfaces_[0].name, " at ",
                      HostText(interfaces_[0].address), chosen);
}

void Net::LogStart(int abi, Logger log) {
  if (said_.exchange(true)) return;
  const std::string line =
      absl::StrCat("NET/rewire: net ABI v", abi, ", ", Describe(),
                   Settings::Get().net_key().empty() ? "" : ", links need the job's key");
  REWIRE_INFO("%s", line.c_str());
  if (log != nullptr) log(kNcclInfo, kNcclInitNet, "rewire", 0, "%s", line.c_str());
}

}  // namespace rewire::net
