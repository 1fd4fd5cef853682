// Net ABI v9 (since NCCL 2.24): sizes are size_t, virtual devices.

#include "tests/simgpu/nccl/net_plugin.h"

namespace simnccl {
namespace {

struct Api {
  const char* name;
  ncclResult_t (*init)(PluginLogger);
  ncclResult_t (*devices)(int*);
  ncclResult_t (*getProperties)(int, NetPropertiesV9*);
  ncclResult_t (*listen)(int device, void* handle, void** comm);
  ncclResult_t (*connect)(int device, void* handle, void** comm, void** device_handle);
  ncclResult_t (*accept)(void* listen_comm, void** comm, void** device_handle);
  SIMNCCL_NET_MEMORY_CALLS
  ncclResult_t (*isend)(void* comm, void* data, size_t size, int tag, void* mh, void** request);
  ncclResult_t (*irecv)(void* comm, int n, void** data, size_t* sizes, int* tags, void** mhs,
                        void** request);
  SIMNCCL_NET_REQUEST_CALLS
  ncclResult_t (*makeVDevice)(int* device, NetVDevice<4>* properties);
};

class NetV9 final : public NetPlugin<Api, NetPropertiesV9> {
 public:
  using NetPlugin::NetPlugin;
  ncclResult_t Init(uint64_t, int, void** context) override {
    *context = nullptr;
    if (initialized_) return ncclSuccess;
    SIMNCCL_TRY(api()->init(TheLogger()));
    initialized_ = true;
    return ncclSuccess;
  }
  ncclResult_t Finalize(void*) override { return ncclSuccess; }
  ncclResult_t Listen(void*, int device, void* handle, void** comm) override {
    return api()->listen(device, handle, comm);
  }
  ncclResult_t Connect(void*, int device, void* handle, void** comm) override {
    void* device_handle = nullptr;
    return api()->connect(device, handle, comm, &device_handle);
  }
  ncclResult_t Isend(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    return api()->isend(comm, data, bytes, tag, mh, request);
  }
  ncclResult_t Irecv(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    return api()->irecv(comm, 1, &data, &bytes, &tag, &mh, request);
  }

 private:
  bool initialized_ = false;
};

}  // namespace

std::shared_ptr<Net> AdaptNetV9(void* symbol) { return std::make_shared<NetV9>(symbol); }

}  // namespace simnccl
