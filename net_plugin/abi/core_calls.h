// The adapters' shared part: opens the core of the net plugin (librewire-net.so) from the directory
// of the file that NCCL opened, and has thin functions from NCCL's signatures to the core's table.
// NCCL may call each function before init has succeeded or after init has failed. The core stays
// loaded until the process ends. Threads: see reconfig/abi/net_core.h; the functions that load are
// thread-safe.
#pragma once

#include <algorithm>

#include "net_plugin/abi/net_types.h"
#include "reconfig/abi/net_core.h"

namespace rewire::net {

inline constexpr char kPluginName[] = "rewire";

// Returns null before LoadCore() has succeeded.
const NetTable* Core() noexcept;
// Opens the core. Returns ncclSystemError if the core cannot be opened, with REWIRE_DISABLE=1, or
// with a wrong setting. The first failure logs the reason, for NCCL also, with the paths.
ncclResult_t LoadCore(Logger log) noexcept;

inline ncclResult_t Devices(int* count) noexcept {
  if (Core() == nullptr || count == nullptr) return ncclInternalError;
  return Core()->devices(count);
}

template <typename Properties>
ncclResult_t GetProperties(int device, Properties* out) noexcept {
  if (Core() == nullptr || out == nullptr) return ncclInternalError;
  DeviceProperties p{};
  if (const ncclResult_t r = Core()->properties(device, &p); r != ncclSuccess) return r;
  *out = Properties{};
  out->name = const_cast<char*>(p.name);
  out->pci_path = const_cast<char*>(p.pci_path);
  out->guid = p.guid;
  out->ptr_support = p.ptr_support;
  out->reg_is_global = p.reg_is_global;
  out->speed = p.speed_mbps;
  out->port = p.port;
  out->latency = p.latency_us;
  out->max_comms = p.max_comms;
  out->max_recvs = p.max_recvs;
  if constexpr (requires { out->virtual_device; }) {
    constexpr int kRoom = sizeof(out->virtual_device.devices) / sizeof(int);
    out->force_flush = p.force_flush;
    out->virtual_device.count = std::min(p.device_count, kRoom);
    std::copy_n(p.devices, out->virtual_device.count, out->virtual_device.devices);
    out->max_p2p_bytes = out->max_coll_bytes = p.max_message_bytes;
  }
  if constexpr (requires { out->max_multi_request_size; }) out->max_multi_request_size = 1;
  if constexpr (requires { out->rail; }) {
    out->rail = p.rail;
    out->plane = p.plane;
  }
  return ncclSuccess;
}

template <int kDevices>
ncclResult_t MakeVDevice(int* device, VirtualDevice<kDevices>* v) noexcept {
  if (Core() == nullptr || device == nullptr || v == nullptr) return ncclInternalError;
  if (v->count < 1 || v->count > kDevices) return ncclInvalidArgument;
  return Core()->make_virtual(device, v->devices, v->count);
}

// NCCL calls the functions below only with objects that the core has made.
inline ncclResult_t AcceptOn(void* listener, void** receiver, void** device_handle) noexcept {
  if (device_handle != nullptr) *device_handle = nullptr;
  return Core()->accept(listener, receiver);
}

inline ncclResult_t ListenIn(void* context, int device, void* handle, void** listener) noexcept {
  if (Core() == nullptr) return ncclInternalError;
  return Core()->listen(context, device, handle, listener);
}

inline ncclResult_t ConnectIn(void* context, int device, void* handle, void** sender,
                              void** device_handle) noexcept {
  if (Core() == nullptr) return ncclInternalError;
  if (device_handle != nullptr) *device_handle = nullptr;
  return Core()->connect(context, device, handle, sender);
}

inline ncclResult_t Reg(void* comm, void* data, size_t bytes, int type, void** mr) noexcept {
  return Core()->reg(comm, data, bytes, type, mr);
}
inline ncclResult_t RegDmaBuf(void* comm, void* data, size_t bytes, int type, uint64_t offset,
                              int fd, void** mr) noexcept {
  return Core()->reg_dmabuf(comm, data, bytes, type, offset, fd, mr);
}
inline ncclResult_t Dereg(void* comm, void* mr) noexcept { return Core()->dereg(comm, mr); }

inline ncclResult_t Isend(void* sender, void* data, size_t bytes, int tag, void* mr, void*,
                          void** request) noexcept {
  return Core()->isend(sender, data, bytes, tag, mr, request);
}

inline ncclResult_t Irecv(void* receiver, int count, void** data, size_t* bytes, int* tags,
                          void** mrs, void**, void** request) noexcept {
  // *request may hold kOptionalRecvCompletion; the core may complete the request anyway.
  *request = nullptr;
  return Core()->irecv(receiver, count, data, bytes, tags, mrs, request);
}

inline ncclResult_t Flush(void* receiver, int count, void** data, int* bytes, void** mrs,
                          void** request) noexcept {
  return Core()->iflush(receiver, count, data, bytes, mrs, request);
}
inline ncclResult_t TestOf(void* request, int* done, int* sizes) noexcept {
  return Core()->test(request, done, sizes);
}
inline ncclResult_t CloseSend(void* comm) noexcept { return Core()->close_sender(comm); }
inline ncclResult_t CloseRecv(void* comm) noexcept { return Core()->close_receiver(comm); }
inline ncclResult_t CloseListen(void* comm) noexcept { return Core()->close_listener(comm); }

inline ncclResult_t Finalize(void* context) noexcept {
  return Core() == nullptr ? ncclSuccess : Core()->finalize(context);
}

// ABI v8 to v10 initialise once per process without a context; they share one process context.
ncclResult_t InitProcess(int abi, Logger log) noexcept;
void* ProcessContext() noexcept;

inline ncclResult_t ListenInProcess(int device, void* handle, void** listener) noexcept {
  return ListenIn(ProcessContext(), device, handle, listener);
}
inline ncclResult_t ConnectInProcess(int device, void* handle, void** sender,
                                     void** device_handle) noexcept {
  return ConnectIn(ProcessContext(), device, handle, sender, device_handle);
}

// ABI v11 and v12 create one context per communicator.
template <int kAbi>
ncclResult_t Init(void** context, uint64_t comm_id, CommConfig* config, Logger log,
                  Profiler) noexcept {
  *context = nullptr;
  if (const ncclResult_t r = LoadCore(log); r != ncclSuccess) return r;
  const int traffic_class = config == nullptr || config->traffic_class == NCCL_CONFIG_UNDEF_INT
                                ? -1
                                : config->traffic_class;
  return Core()->init(context, comm_id, traffic_class, kAbi, log);
}

}  // namespace rewire::net

#define REWIRE_NET_EXPORT extern "C" __attribute__((visibility("default")))
