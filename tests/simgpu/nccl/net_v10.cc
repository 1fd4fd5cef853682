// Net ABI v10 (since NCCL 2.26): a profiler callback, a traffic class per connection.

#include "tests/simgpu/nccl/net_plugin.h"

namespace simnccl {
namespace {

struct Api {
  const char* name;
  ncclResult_t (*init)(PluginLogger, PluginProfiler);
  ncclResult_t (*devices)(int*);
  ncclResult_t (*getProperties)(int, NetPropertiesV9*);
  ncclResult_t (*listen)(int device, void* handle, void** comm);
  ncclResult_t (*connect)(int device, NetCommConfig* config, void* handle, void** comm,
                          void** device_handle);
  ncclResult_t (*accept)(void* listen_comm, void** comm, void** device_handle);
  SIMNCCL_NET_MEMORY_CALLS
  ncclResult_t (*isend)(void* comm, void* data, size_t size, int tag, void* mh, void* phandle,
                        void** request);
  ncclResult_t (*irecv)(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhs,
                        void** phandles, void** request);
  SIMNCCL_NET_REQUEST_CALLS
  ncclResult_t (*makeVDevice)(int* device, NetVDevice<4>* properties);
};

class NetV10 final : public NetPlugin<Api, NetPropertiesV9> {
 public:
  using NetPlugin::NetPlugin;
  ncclResult_t Init(uint64_t, int traffic_class, void** context) override {
    // The adapter's context carries the configuration that v10 needs at connect.
    if (!initialized_) SIMNCCL_TRY(api()->init(TheLogger(), nullptr));
    initialized_ = true;
    *context = new NetCommConfig{traffic_class == NCCL_CONFIG_UNDEF_INT ? -1 : traffic_class};
    return ncclSuccess;
  }
  ncclResult_t Finalize(void* context) override {
    delete static_cast<NetCommConfig*>(context);
    return ncclSuccess;
  }
  ncclResult_t Listen(void*, int device, void* handle, void** comm) override {
    return api()->listen(device, handle, comm);
  }
  ncclResult_t Connect(void* context, int device, void* handle, void** comm) override {
    void* device_handle = nullptr;
    return api()->connect(device, static_cast<NetCommConfig*>(context), handle, comm,
                          &device_handle);
  }
  ncclResult_t Isend(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    return api()->isend(comm, data, bytes, tag, mh, nullptr, request);
  }
  ncclResult_t Irecv(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    void* phandle = nullptr;
    return api()->irecv(comm, 1, &data, &bytes, &tag, &mh, &phandle, request);
  }

 private:
  bool initialized_ = false;
};

}  // namespace

std::shared_ptr<Net> AdaptNetV10(void* symbol) { return std::make_shared<NetV10>(symbol); }

}  // namespace simnccl
