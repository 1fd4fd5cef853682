// Between the file that NCCL opens (net_plugin/abi, libc alone) and the core that it opens in turn
// (librewire-net.so): the functions of NCCL's net plugin in the semantics of its ABI v11/v12, one
// context per communicator. Plain C types only. Threads are NCCL's: Init, Devices, Properties and
// MakeVirtual by threads that make communicators, Listen, Connect, Accept, Reg* and Close* by a
// communicator's service thread, Isend, Irecv, Iflush and Test by its progress thread. No function
// blocks; a null comm or request that comes back means "not yet, ask again".
#pragma once

#include <cstddef>
#include <cstdint>

#include "reconfig/abi/nccl_types.h"

namespace rewire::net {

inline constexpr uint32_t kCoreAbiVersion = 1;
inline constexpr char kCoreStartSymbol[] = "RewireNetStart";

inline constexpr size_t kHandleBytes = 128;  // room that NCCL has for a listener's handle
inline constexpr int kPtrHost = 1;
inline constexpr int kPtrCuda = 2;
inline constexpr int kPtrDmabuf = 4;
// Per communicator object and sub-receive; NCCL keeps no more outstanding.
inline constexpr int kMaxRequests = 32;
inline constexpr int kMaxRecvs = 8;
inline constexpr int kMaxVirtual = 8;

// NCCL's own log (level 3: info, 2: warn; flags: subsystem bits).
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

struct DeviceProperties {
  const char* name;      // lives for ever, like pci_path
  const char* pci_path;  // may be null
  uint64_t guid;
  int ptr_support;
  int reg_is_global;
  int force_flush;
  int speed_mbps;
  int port;
  float latency_us;  // whole: NCCL cuts it to an integer
  int max_comms;
  int max_recvs;
  int device_count;  // of a virtual device
  int devices[kMaxVirtual];
  size_t max_message_bytes;
  int16_t rail;   // -1: not known
  int16_t plane;  // -1: not known
};

// Of this process, since its start.
struct NetCounters {
  uint64_t links_made;      // by connecting
  uint64_t links_reused;    // connections of NCCL's that took up a link at rest
  uint64_t strangers;       // turned away
  uint64_t rails_failed;    // of links over RDMA, counted by their senders
  uint64_t rails_back;      // of those
  uint64_t rails_stood_in;  // between NICs that NCCL has not chosen
};

struct NetTable {
  uint32_t version;
  // abi: the version that NCCL took, for the start line.
  ncclResult_t (*init)(void** context, uint64_t comm_id, int traffic_class, int abi, Logger log);
  ncclResult_t (*finalize)(void* context);  // also of a context that init did not give
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
  ncclResult_t (*counters)(NetCounters* out);
};

// Null, with a text in *why that lives for ever, when the core cannot serve this version.
using CoreStart = const NetTable* (*)(uint32_t version, const char** why);

}  // namespace rewire::net
