#include "reconfig/rdma/verbs_device.h"

#include <fcntl.h>

#include <cerrno>

#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/rdma/verbs_completion_queue.h"
#include "reconfig/rdma/verbs_port.h"
#include "reconfig/rdma/verbs_queue_pair.h"

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
  REWIRE_ASSIGN_OR_RETURN(opened->info_, QueryVerbsDevice(opened->library(), context));
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
  return QueryVerbsPort(*library_, context_, port);
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
