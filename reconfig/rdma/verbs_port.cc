#include "reconfig/rdma/verbs_port.h"

#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/rdma/driver.h"

namespace rewire::rdma {
namespace {

std::string FirstLine(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

Gid GidOf(const ibv_gid& raw) {
  Gid gid;
  std::copy(std::begin(raw.raw), std::end(raw.raw), gid.bytes.begin());
  return gid;
}

// For libraries without _ibv_query_gid_table: queries row by row, and reads the rest from sysfs.
std::vector<GidEntry> GidsFromSysfs(const VerbsLibrary& library, ibv_context* context, uint8_t port,
                                    const ibv_port_attr& attributes) {
  std::vector<GidEntry> entries;
  const std::string base =
      absl::StrCat(context->device->ibdev_path, "/ports/", port, "/gid_attrs/");
  for (int i = 0; i < attributes.gid_tbl_len; ++i) {
    ibv_gid raw{};
    if (library.QueryGid(context, port, i, &raw) != 0) continue;
    GidEntry entry{static_cast<uint32_t>(i), GidOf(raw)};
    if (entry.gid.IsZero()) continue;
    const std::string type = FirstLine(absl::StrCat(base, "types/", i));
    if (attributes.link_layer == IBV_LINK_LAYER_ETHERNET) {
      entry.type = type == "RoCE v2" ? GidType::kRoceV2 : GidType::kRoceV1;
    }
    entry.interface = ::if_nametoindex(FirstLine(absl::StrCat(base, "ndevs/", i)).c_str());
    entries.push_back(entry);
  }
  return entries;
}

absl::StatusOr<std::vector<GidEntry>> QueryGids(const VerbsLibrary& library, ibv_context* context,
                                                uint8_t port, const ibv_port_attr& attributes) {
  if (library.QueryGidTable == nullptr) return GidsFromSysfs(library, context, port, attributes);
  // The table covers the whole device, so it needs room for the rows of all ports.
  ibv_device_attr device{};
  if (const int error = library.QueryDevice(context, &device); error != 0) {
    return CallError("ibv_query_device", context->device->name, error);
  }
  std::vector<ibv_gid_entry> raw(static_cast<size_t>(attributes.gid_tbl_len) *
                                 std::max<size_t>(device.phys_port_cnt, 1));
  const ssize_t count =
      library.QueryGidTable(context, raw.data(), raw.size(), 0, sizeof(ibv_gid_entry));
  if (count < 0) {
    return CallError("ibv_query_gid_table", context->device->name, static_cast<int>(-count));
  }
  std::vector<GidEntry> entries;
  for (const ibv_gid_entry& row : std::span(raw).first(static_cast<size_t>(count))) {
    if (row.port_num != port) continue;
    const GidType type = row.gid_type == IBV_GID_TYPE_ROCE_V2   ? GidType::kRoceV2
                         : row.gid_type == IBV_GID_TYPE_ROCE_V1 ? GidType::kRoceV1
                                                                : GidType::kInfiniBand;
    entries.push_back({row.gid_index, GidOf(row.gid), type, row.ndev_ifindex});
  }
  return entries;
}

PortState StateOf(ibv_port_state state) {
  if (state == IBV_PORT_ACTIVE) return PortState::kActive;
  return state == IBV_PORT_INIT || state == IBV_PORT_ARMED ? PortState::kStarting
                                                           : PortState::kDown;
}

LinkLayer LinkLayerOf(uint8_t link_layer) {
  if (link_layer == IBV_LINK_LAYER_ETHERNET) return LinkLayer::kEthernet;
  // Old kernels do not specify it, and support InfiniBand only.
  return LinkLayer::kInfiniBand;
}

}  // namespace

std::optional<ibv_mtu> MtuOf(uint32_t bytes) {
  for (int code = IBV_MTU_256; code <= IBV_MTU_4096; ++code) {
    if (128U << code == bytes) return static_cast<ibv_mtu>(code);
  }
  return std::nullopt;
}

absl::StatusOr<PortInfo> QueryVerbsPort(const VerbsLibrary& library, ibv_context* context,
                                        uint8_t port) {
  ibv_port_attr attributes{};
  if (const int error = library.QueryPort(context, port, &attributes); error != 0) {
    return CallError("ibv_query_port", context->device->name, error);
  }
  PortInfo info;
  info.number = port;
  info.state = StateOf(attributes.state);
  info.link_layer = LinkLayerOf(attributes.link_layer);
  info.active_mtu = 128U << attributes.active_mtu;
  info.speed_mbps = LinkSpeedMbps(attributes.active_width, attributes.active_speed);
  info.lid = attributes.lid;
  REWIRE_ASSIGN_OR_RETURN(info.gids, QueryGids(library, context, port, attributes));
  for (int i = 0; i < attributes.pkey_tbl_len; ++i) {
    __be16 pkey = 0;
    if (library.QueryPkey(context, port, i, &pkey) != 0) break;
    info.pkeys.push_back(be16toh(pkey));
  }
  return info;
}

absl::StatusOr<DeviceInfo> QueryVerbsDevice(const VerbsLibrary& library, ibv_context* context) {
  ibv_device_attr attributes{};
  if (const int error = library.QueryDevice(context, &attributes); error != 0) {
    return CallError("ibv_query_device", context->device->name, error);
  }
  DeviceInfo info;
  info.name = library.GetDeviceName(context->device);
  info.guid = be64toh(library.GetDeviceGuid(context->device));
  info.max_queue_pairs = static_cast<uint32_t>(attributes.max_qp);
  info.max_work_requests = static_cast<uint32_t>(attributes.max_qp_wr);
  info.max_segments = static_cast<uint32_t>(attributes.max_sge);
  info.max_completions = static_cast<uint32_t>(attributes.max_cqe);
  info.max_reads = static_cast<uint8_t>(std::clamp(attributes.max_qp_rd_atom, 0, 255));
  char path[PATH_MAX] = {};
  if (::realpath(absl::StrCat(context->device->ibdev_path, "/device").c_str(), path) != nullptr) {
    info.pci_path = path;
  }
  for (uint8_t port = 1; port <= attributes.phys_port_cnt; ++port) {
    REWIRE_ASSIGN_OR_RETURN(PortInfo queried, QueryVerbsPort(library, context, port));
    info.ports.push_back(std::move(queried));
  }
  return info;
}

}  // namespace rewire::rdma
