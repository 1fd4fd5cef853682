// Queries a device and its ports by the verbs and sysfs, registers memory and reads events; see
// verbs_device.h.
#include "reconfig/rdma/verbs_device.h"

#include <fcntl.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/rdma/verbs_queues.h"

namespace rewire::rdma {
namespace {

class VerbsMemory final : public MemoryRegion {
 public:
  VerbsMemory(std::shared_ptr<VerbsDevice> device, ibv_mr* mr)
      : device_(std::move(device)), mr_(mr), lkey_(mr->lkey), rkey_(mr->rkey) {}
  ~VerbsMemory() override {
    if (mr_ == nullptr) return;
    const absl::Status status = Deregister();
    if (!status.ok()) REWIRE_WARN("rdma: %s", status.ToString().c_str());
  }
  [[nodiscard]] uint32_t lkey() const override { return lkey_; }
  [[nodiscard]] uint32_t rkey() const override { return rkey_; }
  absl::Status Deregister() override {
    if (mr_ == nullptr)
      return absl::FailedPreconditionError("ibv_dereg_mr: the memory is already deregistered");
    const int error = device_->library().DeregMr(std::exchange(mr_, nullptr));
    return error == 0 ? absl::OkStatus() : device_->Error("ibv_dereg_mr", error);
  }

 private:
  const std::shared_ptr<VerbsDevice> device_;
  ibv_mr* mr_;
  const uint32_t lkey_;
  const uint32_t rkey_;
};

DeviceEventKind KindOf(ibv_event_type type) {
  switch (type) {
    case IBV_EVENT_PORT_ACTIVE:
      return DeviceEventKind::kPortActive;
    case IBV_EVENT_PORT_ERR:
      return DeviceEventKind::kPortDown;
    case IBV_EVENT_GID_CHANGE:
      return DeviceEventKind::kGidChange;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
      return DeviceEventKind::kAddressChange;
    case IBV_EVENT_DEVICE_FATAL:
      return DeviceEventKind::kDeviceFatal;
    case IBV_EVENT_CQ_ERR:
      return DeviceEventKind::kCompletionQueueError;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
      return DeviceEventKind::kQueuePairError;
    default:
      return DeviceEventKind::kOther;
  }
}

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

absl::StatusOr<PortInfo> QueryPortInfo(const VerbsLibrary& library, ibv_context* context,
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

absl::StatusOr<DeviceInfo> QueryDeviceInfo(const VerbsLibrary& library, ibv_context* context) {
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
    REWIRE_ASSIGN_OR_RETURN(PortInfo queried, QueryPortInfo(library, context, port));
    info.ports.push_back(std::move(queried));
  }
  return info;
}

}  // namespace

int AccessFlags(Access access) {
  // A device refuses remote writes to memory without local write access.
  return (access.local_write || access.remote_write ? IBV_ACCESS_LOCAL_WRITE : 0) |
         (access.remote_write ? IBV_ACCESS_REMOTE_WRITE : 0) |
         (access.remote_read ? IBV_ACCESS_REMOTE_READ : 0);
}

absl::StatusOr<std::shared_ptr<VerbsDevice>> VerbsDevice::Open(
    std::shared_ptr<const VerbsLibrary> library, ibv_device* device) {
  const std::string name = library->GetDeviceName(device);
  ibv_context* context = library->OpenDevice(device);
  if (context == nullptr) return CallError("ibv_open_device", name, errno);
  std::shared_ptr<VerbsDevice> opened(new VerbsDevice(std::move(library), context));
  const int flags = ::fcntl(context->async_fd, F_GETFL);
  if (flags < 0 || ::fcntl(context->async_fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return CallError("fcntl of the event descriptor", name, errno);
  }
  REWIRE_ASSIGN_OR_RETURN(opened->info_, QueryDeviceInfo(opened->library(), context));
  opened->pd_ = opened->library().AllocPd(context);
  if (opened->pd_ == nullptr) return CallError("ibv_alloc_pd", name, errno);
  return opened;
}

VerbsDevice::~VerbsDevice() {
  if (pd_ != nullptr) {
    if (const int error = library_->DeallocPd(pd_); error != 0) {
      REWIRE_WARN("rdma: %s", Error("ibv_dealloc_pd", error).ToString().c_str());
    }
  }
  if (library_->CloseDevice(context_) != 0) {
    REWIRE_WARN("rdma: %s", Error("ibv_close_device", errno).ToString().c_str());
  }
}

absl::StatusOr<PortInfo> VerbsDevice::QueryPort(uint8_t port) {
  return QueryPortInfo(*library_, context_, port);
}

absl::StatusOr<std::shared_ptr<CompletionQueue>> VerbsDevice::CreateCompletionQueue(
    uint32_t entries) {
  const uint32_t id = ++queues_;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a number for ReadEvent, never followed.
  void* const name = reinterpret_cast<void*>(uintptr_t{id});
  ibv_cq* cq = library_->CreateCq(context_, static_cast<int>(entries), name, nullptr, 0);
  if (cq == nullptr) return Error("ibv_create_cq", errno);
  return std::make_shared<VerbsCompletionQueue>(shared_from_this(), cq, id);
}

absl::StatusOr<std::unique_ptr<QueuePair>> VerbsDevice::CreateQueuePair(
    const QueuePairOptions& options) {
  return VerbsQueuePair::Create(shared_from_this(), pd_, options);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> VerbsDevice::Register(void* address, size_t bytes,
                                                                    Access access) {
  ibv_mr* mr = nullptr;
  if (access.relaxed_ordering && library_->RegMrIova2 != nullptr) {
    mr = library_->RegMrIova2(
        pd_, address, bytes, reinterpret_cast<uintptr_t>(address),
        static_cast<unsigned int>(AccessFlags(access)) | IBV_ACCESS_RELAXED_ORDERING);
  } else {
    mr = library_->RegMr(pd_, address, bytes, AccessFlags(access));
  }
  if (mr == nullptr) return Error("ibv_reg_mr", errno);
  return std::make_unique<VerbsMemory>(shared_from_this(), mr);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> VerbsDevice::RegisterDmabuf(int fd, uint64_t offset,
                                                                          size_t bytes,
                                                                          uint64_t address,
                                                                          Access access) {
  if (library_->RegDmabufMr == nullptr) return Error("ibv_reg_dmabuf_mr", EOPNOTSUPP);
  const int relaxed = access.relaxed_ordering ? static_cast<int>(IBV_ACCESS_RELAXED_ORDERING) : 0;
  ibv_mr* mr =
      library_->RegDmabufMr(pd_, offset, bytes, address, fd, AccessFlags(access) | relaxed);
  if (mr == nullptr) return Error("ibv_reg_dmabuf_mr", errno);
  return std::make_unique<VerbsMemory>(shared_from_this(), mr);
}

absl::StatusOr<std::optional<DeviceEvent>> VerbsDevice::ReadEvent() {
  ibv_async_event raw{};
  if (library_->GetAsyncEvent(context_, &raw) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::nullopt;
    return Error("ibv_get_async_event", errno);
  }
  DeviceEvent event;
  event.kind = KindOf(raw.event_type);
  event.text = library_->EventTypeStr(raw.event_type);
  switch (raw.event_type) {
    case IBV_EVENT_CQ_ERR:
      event.queue = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(raw.element.cq->cq_context));
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      event.queue = raw.element.qp->qp_num;
      break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
    case IBV_EVENT_WQ_FATAL:
      break;
    default:
      event.port = static_cast<uint8_t>(raw.element.port_num);
      break;
  }
  // Acknowledges at once: a queue cannot be destroyed while one of its events is unacknowledged.
  library_->AckAsyncEvent(&raw);
  return event;
}

}  // namespace rewire::rdma
