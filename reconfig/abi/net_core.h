// The interface between the file that NCCL opens (net_plugin/abi, libc alone) and the core
// (librewire-net.so), which that file opens. The table has the functions of NCCL's net plugin with
// the semantics of ABI v11/v12: one context per communicator. Only plain C types cross the
// interface. All threads are NCCL's. Threads that create communicators call init, devices,
// properties and make_virtual. A communicator's service thread calls listen, connect, accept, reg*
// and close*; its progress thread calls isend, irecv, iflush and test. No function blocks; a null
// comm or request means "not yet, ask again".
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/counter_value.h"
#include "reconfig/abi/nccl_types.h"

namespace rewire::net {

inline constexpr uint32_t kCoreAbiVersion = 2;
inline constexpr char kCoreStartSymbol[] = "RewireNetStart";

inline constexpr size_t kHandleBytes = 128;  // NCCL's limit for a listener's handle
inline constexpr int kPtrHost = 1;
inline constexpr int kPtrCuda = 2;
inline constexpr int kPtrDmabuf = 4;
// NCCL keeps at most this many requests outstanding per communicator object and sub-receive.
inline constexpr int kMaxRequests = 32;
inline constexpr int kMaxRecvs = 8;
inline constexpr int kMaxVirtual = 8;

// NCCL's own log function (level 3: info, 2: warn; flags: subsystem bits).
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

struct DeviceProperties {
  const char* name;      // valid until the process ends, like pci_path
  const char* pci_path;  // may be null
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;  // an integral value: NCCL truncates it
  int max_comms;
  int max_recvs;
  int device_count;  // ports of a virtual device
  int devices[kMaxVirtual];
  size_t max_message_bytes;
  int16_t rail;   // -1: unknown
  int16_t plane;  // -1: unknown
};

struct NetTable {
  uint32_t version;
  // abi: the version that NCCL selected, for the start line.
  ncclResult_t (*init)(void** context, uint64_t comm_id, int traffic_class, int abi, Logger log);
  ncclResult_t (*finalize)(void* context);  // accepts also a context that init did not create
  ncclResult_t (*devices)(int* count);
  ncclResult_t (*properties)(int device, DeviceProperties* out);
  ncclResult_t (*make_virtual)(int* device, const int* devices, int count);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** listener);
  ncclResult_t (*connect)(void* context, int device, void* handle, void** sender);
  ncclResult_t (*accept)(void* listener, void** receiver);
  ncclResult_t (*reg)(void* comm, void* data, size_t bytes, int type, void** mr);
  ncclResult_t (*reg_dmabuf)(void* comm, void* data, size_t bytes, int type, uint64_t offset,
                             int fd, void** mr);
  ncclResult_t (*dereg)(void* comm, void* mr);
  ncclResult_t (*isend)(void* sender, void* data, size_t bytes, int tag, void* mr, void** request);
  ncclResult_t (*irecv)(void* receiver, int count, void** data, const size_t* bytes,
                        const int* tags, void** mrs, void** request);
  ncclResult_t (*iflush)(void* receiver, int count, void** data, const int* bytes, void** mrs,
                         void** request);
  ncclResult_t (*test)(void* request, int* done, int* sizes);
  ncclResult_t (*close_sender)(void* sender);
  ncclResult_t (*close_receiver)(void* receiver);
  ncclResult_t (*close_listener)(void* listener);
  ReadCounters counters;
};

// Returns null if the core cannot serve this version; *why then has a text that stays valid until
// the process ends.
using CoreStart = const NetTable* (*)(uint32_t version, const char** why);

}  // namespace rewire::net
