// Net ABI v8 (since NCCL 2.20): initialised once per process, sizes are int.

#include "tests/simgpu/nccl/net_plugin.h"

namespace simnccl {
namespace {

struct Api {
  const char* name;
  ncclResult_t (*init)(PluginLogger);
  ncclResult_t (*devices)(int*);
  ncclResult_t (*getProperties)(int, NetPropertiesV8*);
  ncclResult_t (*listen)(int device, void* handle, void** comm);
  ncclResult_t (*connect)(int device, void* handle, void** comm, void** device_handle);
  ncclResult_t (*accept)(void* listen_comm, void** comm, void** device_handle);
  SIMNCCL_NET_MEMORY_CALLS
  ncclResult_t (*isend)(void* comm, void* data, int size, int tag, void* mh, void** request);
  ncclResult_t (*irecv)(void* comm, int n, void** data, int* sizes, int* tags, void** mhs,
                        void** request);
  SIMNCCL_NET_REQUEST_CALLS
};

class NetV8 final : public NetPlugin<Api, NetPropertiesV8> {
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
    return api()->isend(comm, data, static_cast<int>(bytes), tag, mh, request);
  }
  ncclResult_t Irecv(void* comm, void* data, size_t bytes, int tag, void* mh,
                     void** request) override {
    int size = static_cast<int>(bytes);
    return api()->irecv(comm, 1, &data, &size, &tag, &mh, request);
  }

 private:
  bool initialized_ = false;
};

}  // namespace

std::shared_ptr<Net> AdaptNetV8(void* symbol) { return std::make_shared<NetV8>(symbol); }

}  // namespace simnccl
