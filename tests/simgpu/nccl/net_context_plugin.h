// Common parts of net ABI v11 and v12: a context per communicator. The versions differ in their
// properties and in the number of devices of a virtual NIC. Threads: see net.h.
#pragma once

#include "tests/simgpu/nccl/net_plugin.h"

namespace simnccl {

template <typename Properties, int kDevices>
struct NetContextApi {
  const char* name;
  ncclResult_t (*init)(void** context, uint64_t comm_id, NetCommConfig* config, PluginLogger,
                       PluginProfiler);
  ncclResult_t (*devices)(int*);
  ncclResult_t (*getProperties)(int, Properties*);
  ncclResult_t (*listen)(void* context, int device, void* handle, void** comm);
  ncclResult_t (*connect)(void* context, int device, void* handle, void** comm,
                          void** device_handle);
  ncclResult_t (*accept)(void* listen_comm, void** comm, void** device_handle);
  SIMNCCL_NET_MEMORY_CALLS
  ncclResult_t (*isend)(void* comm, void* data, size_t size, int tag, void* mh, void* phandle,
                        void** request);
  ncclResult_t (*irecv)(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhs,
                        void** phandles, void** request);
  SIMNCCL_NET_REQUEST_CALLS
  ncclResult_t (*makeVDevice)(int* device, NetVDevice<kDevices>* properties);
  ncclResult_t (*finalize)(void* context);
  ncclResult_t (*setNetAttr)(void* context, void* attributes);
};

template <typename Properties, int kDevices>
class NetContextPlugin final : public NetPlugin<NetContextApi<Properties, kDevices>, Properties> {
 public:
  using NetPlugin<NetContextApi<Properties, kDevices>, Properties>::NetPlugin;
  ncclResult_t Init(uint64_t comm_id, int traffic_class, void** context) override {
    NetCommConfig config{traffic_class == NCCL_CONFIG_UNDEF_INT ? -1 : traffic_class};
    return this->api()->init(context, comm_id, &config, TheLogger(), nullptr);
  }
  ncclResult_t Finalize(void* context) override { return this->api()->finalize(context); }
  ncclResult_t Listen(void* context, int device, void* handle, void** comm) override {
    return this->api()->listen(context, device, handle, comm);
  }
  ncclResult_t Connect(void* context, int device, void* handle, void** comm) override {
    void* device_handle = nullptr;
    return this->api()->connect(context, device, handle, comm, &device_handle);
  }
  ncclResult_t Isend(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    return this->api()->isend(comm, data, bytes, tag, mh, nullptr, request);
  }
  ncclResult_t Irecv(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    void* phandle = nullptr;
    return this->api()->irecv(comm, 1, &data, &bytes, &tag, &mh, &phandle, request);
  }
};

}  // namespace simnccl
