// The core's table: converts between NCCL's void* and the core's objects, and from absl::Status to
// NCCL's results. No exception crosses the table. Threads: see reconfig/abi/net_core.h.
#include <memory>

#include "net_plugin/plugin/net.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"

namespace rewire::net {
namespace {

// Only this function converts a status to NCCL's number.
ncclResult_t ToNccl(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ncclSuccess;
    case absl::StatusCode::kInvalidArgument:
      return ncclInvalidArgument;
    case absl::StatusCode::kFailedPrecondition:
      return ncclInvalidUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kDataLoss:
      return ncclRemoteError;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
      return ncclSystemError;
    default:
      return ncclInternalError;
  }
}

// Logs the failure of a call that runs once per connection. Isend, Irecv and Test log their own.
ncclResult_t Said(const char* call, const absl::Status& status) {
  if (!status.ok()) {
    REWIRE_WARN("net plugin: %s: %s", call, std::string(status.message()).c_str());
  }
  return ToNccl(status);
}

ncclResult_t Init(void** context, uint64_t, int, int abi, Logger log) noexcept {
  const absl::StatusOr<Net*> net = Net::Get();
  if (!net.ok()) return Said("init", net.status());
  (*net)->LogStart(abi, log);
  // All communicators of a process share one context.
  static char all;
  *context = &all;
  return ncclSuccess;
}

// NCCL also calls Finalize after a failed init, with an undefined context.
ncclResult_t Finalize(void*) noexcept { return ncclSuccess; }

ncclResult_t Devices(int* count) noexcept {
  const absl::StatusOr<Net*> net = Net::Get();
  *count = net.ok() ? (*net)->devices() : 0;
  return ToNccl(net.status());
}

ncclResult_t Properties(int device, DeviceProperties* out) noexcept {
  const absl::StatusOr<Net*> net = Net::Get();
  if (!net.ok()) return ToNccl(net.status());
  const absl::StatusOr<DeviceProperties> p = (*net)->Properties(device);
  if (!p.ok()) return Said("getProperties", p.status());
  *out = *p;
  return ncclSuccess;
}

ncclResult_t MakeVirtual(int* device, const int* devices, int count) noexcept {
  const absl::StatusOr<Net*> net = Net::Get();
  if (!net.ok()) return ToNccl(net.status());
  const absl::StatusOr<int> made = (*net)->MakeVirtual({devices, static_cast<size_t>(count)});
  if (!made.ok()) return Said("makeVDevice", made.status());
  *device = *made;
  return ncclSuccess;
}

ncclResult_t Listen(void*, int device, void* handle, void** listener) noexcept {
  const absl::StatusOr<Net*> net = Net::Get();
  if (!net.ok()) return ToNccl(net.status());
  absl::StatusOr<std::unique_ptr<Listener>> made = (*net)->Listen(device, handle);
  if (!made.ok()) return Said("listen", made.status());
  *listener = made->release();
  return ncclSuccess;
}

ncclResult_t Connect(void*, int device, void* handle, void** sender) noexcept {
  *sender = nullptr;
  const absl::StatusOr<Net*> net = Net::Get();
  if (!net.ok()) return ToNccl(net.status());
  absl::StatusOr<std::unique_ptr<Sender>> made = (*net)->Connect(device, handle);
  if (!made.ok()) return Said("connect", made.status());
  *sender = static_cast<Comm*>(made->release());
  return ncclSuccess;
}

ncclResult_t Accept(void* listener, void** receiver) noexcept {
  *receiver = nullptr;
  absl::StatusOr<std::unique_ptr<Receiver>> made = static_cast<Listener*>(listener)->Accept();
  if (!made.ok()) return Said("accept", made.status());
  *receiver = static_cast<Comm*>(made->release());
  return ncclSuccess;
}

// NCCL passes senders and receivers as void*; both are Comm objects.
Comm* CommOf(void* comm) { return static_cast<Comm*>(comm); }

ncclResult_t Reg(void* comm, void* data, size_t bytes, int type, void** mr) noexcept {
  const absl::StatusOr<void*> made = CommOf(comm)->Register(data, bytes, type);
  if (!made.ok()) return Said("regMr", made.status());
  *mr = *made;
  return ncclSuccess;
}

ncclResult_t RegDmabuf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                       void** mr) noexcept {
  const absl::StatusOr<void*> made = CommOf(comm)->RegisterDmabuf(data, bytes, type, offset, fd);
  if (!made.ok()) return Said("regMrDmaBuf", made.status());
  *mr = *made;
  return ncclSuccess;
}

ncclResult_t Dereg(void* comm, void* mr) noexcept {
  return Said("deregMr", CommOf(comm)->Deregister(mr));
}

ncclResult_t Isend(void* sender, void* data, size_t bytes, int tag, void* mr,
                   void** request) noexcept {
  *request = nullptr;
  const absl::StatusOr<Request*> made =
      static_cast<Sender*>(CommOf(sender))->Isend(data, bytes, tag, mr);
  if (!made.ok()) return ToNccl(made.status());
  *request = *made;
  return ncclSuccess;
}

ncclResult_t Irecv(void* receiver, int count, void** data, const size_t* bytes, const int* tags,
                   void** mrs, void** request) noexcept {
  *request = nullptr;
  const absl::StatusOr<Request*> made =
      static_cast<Receiver*>(CommOf(receiver))->Irecv(count, data, bytes, tags, mrs);
  if (!made.ok()) return ToNccl(made.status());
  *request = *made;
  return ncclSuccess;
}

ncclResult_t Iflush(void* receiver, int count, void** data, const int*, void** mrs,
                    void** request) noexcept {
  *request = nullptr;
  const absl::StatusOr<Request*> made =
      static_cast<Receiver*>(CommOf(receiver))->Iflush(count, data, mrs);
  if (!made.ok()) return Said("iflush", made.status());
  *request = *made;
  return ncclSuccess;
}

ncclResult_t Test(void* request, int* done, int* sizes) noexcept {
  auto* const r = static_cast<Request*>(request);
  const absl::StatusOr<bool> through = r->comm->Test(r, sizes);
  *done = 0;
  if (!through.ok()) return ToNccl(through.status());
  *done = *through ? 1 : 0;
  return ncclSuccess;
}

ncclResult_t CloseComm(void* comm) noexcept {
  delete CommOf(comm);
  return ncclSuccess;
}

ncclResult_t CloseListener(void* listener) noexcept {
  delete static_cast<Listener*>(listener);
  return ncclSuccess;
}

constexpr NetTable kTable = {
    kCoreAbiVersion, Init,   Finalize,  Devices,   Properties,    MakeVirtual, Listen,
    Connect,         Accept, Reg,       RegDmabuf, Dereg,         Isend,       Irecv,
    Iflush,          Test,   CloseComm, CloseComm, CloseListener, CopyCounters};

}  // namespace

extern "C" __attribute__((visibility("default"))) const NetTable* RewireNetStart(uint32_t version,
                                                                                 const char** why) {
  if (version == kCoreAbiVersion) return &kTable;
  *why = "the library belongs to another build of Rewire";
  return nullptr;
}

}  // namespace rewire::net
