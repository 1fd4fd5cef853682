#include "net_plugin/core/net.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "net_plugin/socket/socket_listener.h"
#include "net_plugin/socket/socket_sender.h"
#include "net_plugin/socket/workers.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"

namespace rewire::net {
namespace {

constexpr int kNcclInfo = 3;
constexpr unsigned long kNcclInitNet = 1 | 16;  // the subsystems INIT and NET
// What NCCL takes for an interface that does not tell its speed.
constexpr int kDefaultMbps = 10000;
constexpr size_t kMostMessageBytes = size_t{1} << 30;

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::StatusOr<uint64_t> JobKey() {
  const std::string& text = Settings::Get().net_key();
  uint64_t key = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), key, 16);
  if (text.empty()) return 0;
  if (error == std::errc() && end == text.data() + text.size() && key != 0) return key;
  return absl::InvalidArgumentError("REWIRE_NET_KEY must have 1 to 16 hexadecimal digits");
}

}  // namespace

Net::Net(std::vector<Interface> interfaces, uint64_t key)
    : interfaces_(std::move(interfaces)),
      streams_(static_cast<int>(Settings::Get().net_sockets())),
      links_(LinksOptions{key}) {}

absl::StatusOr<std::unique_ptr<Net>> Net::Make() {
  absl::StatusOr<std::vector<Interface>> all = ListInterfaces();
  if (!all.ok()) return all.status();
  absl::StatusOr<std::vector<Interface>> chosen =
      Choose(*all, Variable("NCCL_SOCKET_IFNAME"), Variable("NCCL_SOCKET_FAMILY"));
  if (!chosen.ok()) return chosen.status();
  const absl::StatusOr<uint64_t> key = JobKey();
  if (!key.ok()) return key.status();
  return std::unique_ptr<Net>(new Net(*std::move(chosen), *key));
}

absl::StatusOr<Net*> Net::Get() {
  static auto* const net = new absl::StatusOr<std::unique_ptr<Net>>(Make());
  if (!net->ok()) return net->status();
  return (*net)->get();
}

absl::StatusOr<const Interface*> Net::At(int device) const {
  if (device < 0 || device >= devices()) {
    return absl::InvalidArgumentError(absl::StrCat("device ", device, ": there are ", devices()));
  }
  return &interfaces_[static_cast<size_t>(device)];
}

// More streams where one connection cannot fill the wire, or nothing says that it can.
int Net::StreamsOf(const Interface& interface) const {
  if (!Workers::Get().ok()) return 1;
  if (streams_ > 0) return streams_;
  const int mbps = interface.speed_mbps;
  if (mbps == 0) return 2;
  return mbps <= kDefaultMbps ? 1 : std::clamp(mbps / 25000 + 1, 2, 8);
}

absl::StatusOr<DeviceProperties> Net::Properties(int device) const {
  const absl::StatusOr<const Interface*> at = At(device);
  if (!at.ok()) return at.status();
  const Interface& i = **at;
  DeviceProperties p{};
  p.name = i.name.c_str();
  p.pci_path = i.pci_path.empty() ? nullptr : i.pci_path.c_str();
  p.guid = static_cast<uint64_t>(device);
  p.ptr_support = kPtrHost;
  p.speed_mbps = i.speed_mbps > 0 ? i.speed_mbps : kDefaultMbps;
  p.latency_us = 0;  // NCCL has a figure of its own for networks
  p.max_comms = 65536;
  p.max_recvs = 1;
  p.device_count = 1;
  p.devices[0] = device;
  p.max_message_bytes = kMostMessageBytes;
  p.rail = p.plane = -1;
  return p;
}

absl::StatusOr<std::unique_ptr<Listener>> Net::Listen(int device, void* handle) {
  const absl::StatusOr<const Interface*> at = At(device);
  if (!at.ok()) return at.status();
  const absl::StatusOr<ListenAddress> address = links_.Listen((*at)->address);
  if (!address.ok()) return address.status();
  EncodeAddress(*address, handle);
  return std::make_unique<SocketListener>(address->listener, &links_);
}

absl::StatusOr<std::unique_ptr<Sender>> Net::Connect(int device, void* handle) {
  const absl::StatusOr<const Interface*> at = At(device);
  if (!at.ok()) return at.status();
  std::optional<ListenAddress> address = DecodeAddress(handle);
  if (!address) {
    return absl::InvalidArgumentError(
        "the peer's handle is none of this plugin, or of another version of it: all members must "
        "load the same network");
  }
  absl::StatusOr<std::unique_ptr<Link>> link =
      links_.Connect((*at)->address, StreamsOf(**at), &*address);
  if (!link.ok()) return link.status();
  EncodeAddress(*address, handle);
  if (*link == nullptr) return nullptr;
  return std::make_unique<SocketSender>(*std::move(link), &links_);
}

void Net::SayStart(int abi, Logger log) {
  if (said_.exchange(true)) return;
  std::string rails;
  for (const Interface& i : interfaces_) {
    absl::StrAppend(&rails, rails.empty() ? "" : ", ", i.name, " (",
                    i.speed_mbps > 0 ? absl::StrCat(i.speed_mbps, " Mbit/s") : "speed unknown",
                    ", ", StreamsOf(i), " sockets)");
  }
  const std::string line =
      absl::StrCat("NET/rewire: net ABI v", abi, ", sockets over ", rails,
                   Settings::Get().net_key().empty() ? "" : ", links need the job's key");
  REWIRE_INFO("%s", line.c_str());
  if (log != nullptr) log(kNcclInfo, kNcclInitNet, "rewire", 0, "%s", line.c_str());
}

}  // namespace rewire::net
