// The structs of NCCL's net plugin ABI, v8 (NCCL 2.20) to v12 (NCCL 2.30), declared from its
// published facts. NCCL reads the ncclNetPlugin_vN symbols as these structs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/net_core.h"

namespace rewire::net {

// irecv's *request has this value on entry if the caller watches the data itself.
inline constexpr uintptr_t kOptionalRecvCompletion = 1;

using Profiler = ncclResult_t (*)(void** handle, int type, void* parent, int64_t plugin,
                                  void* data);

struct CommConfig {  // since v10
  int traffic_class;
};

struct PropertiesV8 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;  // 0: the host drives the NIC
  int net_device_version;
};

template <int kDevices>
struct VirtualDevice {
  int count;
  int devices[kDevices];
};

struct PropertiesV9 {  // v9 and v10
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VirtualDevice<4> virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
};

struct PropertiesV11 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VirtualDevice<4> virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
};

struct PropertiesV12 {
  char* name;
  char* pci_path;
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed;
  int port;
  float latency;
  int max_comms;
  int max_recvs;
  int net_device_type;
  int net_device_version;
  VirtualDevice<8> virtual_device;
  size_t max_p2p_bytes;
  size_t max_coll_bytes;
  int max_multi_request_size;
  int16_t rail;
  int16_t plane;
};

// These signatures are the same in all versions.
using RegMr = ncclResult_t (*)(void* comm, void* data, size_t bytes, int type, void** mr);
using RegMrDmaBuf = ncclResult_t (*)(void* comm, void* data, size_t bytes, int type,
                                     uint64_t offset, int fd, void** mr);
using DeregMr = ncclResult_t (*)(void* comm, void* mr);
using Accept = ncclResult_t (*)(void* listener, void** receiver, void** device_handle);
using Iflush = ncclResult_t (*)(void* receiver, int count, void** data, int* bytes, void** mrs,
                                void** request);
using Test = ncclResult_t (*)(void* request, int* done, int* sizes);
using Close = ncclResult_t (*)(void* comm);
using GetDeviceMr = ncclResult_t (*)(void* comm, void* mr, void** device_mr);
using IrecvConsumed = ncclResult_t (*)(void* receiver, int count, void* request);

struct NetV8 {
  const char* name;
  ncclResult_t (*init)(Logger log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*get_properties)(int device, PropertiesV8* out);
  ncclResult_t (*listen)(int device, void* handle, void** listener);
  ncclResult_t (*connect)(int device, void* handle, void** sender, void** device_handle);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dmabuf;
  DeregMr dereg_mr;
  ncclResult_t (*isend)(void* sender, void* data, int bytes, int tag, void* mr, void** request);
  ncclResult_t (*irecv)(void* receiver, int count, void** data, int* bytes, int* tags, void** mrs,
                        void** request);
  Iflush iflush;
  Test test;
  Close close_send;
  Close close_recv;
  Close close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
};

struct NetV9 {
  const char* name;
  ncclResult_t (*init)(Logger log);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*get_properties)(int device, PropertiesV9* out);
  ncclResult_t (*listen)(int device, void* handle, void** listener);
  ncclResult_t (*connect)(int device, void* handle, void** sender, void** device_handle);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dmabuf;
  DeregMr dereg_mr;
  ncclResult_t (*isend)(void* sender, void* data, size_t bytes, int tag, void* mr, void** request);
  ncclResult_t (*irecv)(void* receiver, int count, void** data, size_t* bytes, int* tags,
                        void** mrs, void** request);
  Iflush iflush;
  Test test;
  Close close_send;
  Close close_recv;
  Close close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
  ncclResult_t (*make_v_device)(int* device, VirtualDevice<4>* properties);
};

// The signatures of isend and irecv since v10.
using IsendV10 = ncclResult_t (*)(void* sender, void* data, size_t bytes, int tag, void* mr,
                                  void* profile, void** request);
using IrecvV10 = ncclResult_t (*)(void* receiver, int count, void** data, size_t* bytes, int* tags,
                                  void** mrs, void** profiles, void** request);

struct NetV10 {
  const char* name;
  ncclResult_t (*init)(Logger log, Profiler profiler);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*get_properties)(int device, PropertiesV9* out);
  ncclResult_t (*listen)(int device, void* handle, void** listener);
  ncclResult_t (*connect)(int device, CommConfig* config, void* handle, void** sender,
                          void** device_handle);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dmabuf;
  DeregMr dereg_mr;
  IsendV10 isend;
  IrecvV10 irecv;
  Iflush iflush;
  Test test;
  Close close_send;
  Close close_recv;
  Close close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
  ncclResult_t (*make_v_device)(int* device, VirtualDevice<4>* properties);
};

// v11 and v12 pass a context per communicator.
template <typename Properties, int kDevices>
struct NetWithContext {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, CommConfig* config, Logger log,
                       Profiler profiler);
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*get_properties)(int device, Properties* out);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listener);
  ncclResult_t (*connect)(void* context, int device, void* handle, void** sender,
                          void** device_handle);
  Accept accept;
  RegMr reg_mr;
  RegMrDmaBuf reg_mr_dmabuf;
  DeregMr dereg_mr;
  IsendV10 isend;
  IrecvV10 irecv;
  Iflush iflush;
  Test test;
  Close close_send;
  Close close_recv;
  Close close_listen;
  GetDeviceMr get_device_mr;
  IrecvConsumed irecv_consumed;
  ncclResult_t (*make_v_device)(int* device, VirtualDevice<kDevices>* properties);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*set_net_attr)(void* context, void* attributes);  // may be null
};
using NetV11 = NetWithContext<PropertiesV11, 4>;
using NetV12 = NetWithContext<PropertiesV12, 8>;

}  // namespace rewire::net
