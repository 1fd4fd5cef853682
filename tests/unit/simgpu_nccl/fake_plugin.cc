// A net plugin for the loader's tests: the socket transport under the names of several ABI versions
// (each version reports its number), and a tuner whose behaviour a variable selects.

#include <cstdlib>
#include <cstring>

#include "tests/simgpu/nccl/net_context_plugin.h"
#include "tests/simgpu/nccl/socket_net.h"

namespace simnccl {
namespace {

SocketNet net;

template <typename Properties>
ncclResult_t Describe(int /*device*/, Properties* p) {
  static char name[] = "fake";
  *p = Properties{};
  p->name = p->pciPath = name;
  p->ptrSupport = kNetPtrHost | kNetPtrCuda;
  p->speed = 1000;
  p->maxComms = 1024;
  p->maxRecvs = 1;
  if constexpr (requires { p->maxP2pBytes; }) p->maxP2pBytes = p->maxCollBytes = size_t{1} << 40;
  return ncclSuccess;
}

ncclResult_t Devices(int* n) {
  *n = 1;
  return ncclSuccess;
}
ncclResult_t Accept(void* listen, void** comm, void**) { return net.Accept(listen, comm); }
ncclResult_t RegMr(void* comm, void* data, size_t bytes, int type, void** mh) {
  if (type != kNetPtrCuda) return ncclInternalError;  // CUDA memory is advertised.
  return net.RegMr(comm, data, bytes, kNetPtrHost, mh);
}
ncclResult_t DeregMr(void* comm, void* mh) { return net.DeregMr(comm, mh); }
ncclResult_t Test(void* r, int* done, int* sizes) { return net.Test(r, done, sizes); }
ncclResult_t CloseSend(void* comm) { return net.CloseSend(comm); }
ncclResult_t CloseRecv(void* comm) { return net.CloseRecv(comm); }
ncclResult_t CloseListen(void* comm) { return net.CloseListen(comm); }

struct PropertiesV11 : NetPropertiesV9 {
  int maxMultiRequestSize;
};

template <typename Properties, int kDevices>
NetContextApi<Properties, kDevices> ContextApi(const char* name) {
  NetContextApi<Properties, kDevices> api{};
  api.name = name;
  api.init = [](void** context, uint64_t, NetCommConfig*, PluginLogger log, PluginProfiler) {
    log(3, 0, "", 0, "initialised");
    *context = std::malloc(1);  // ASan detects a leak or a double free of this block.
    return ncclSuccess;
  };
  api.devices = Devices;
  api.getProperties = Describe<Properties>;
  api.listen = [](void* c, int d, void* h, void** comm) { return net.Listen(c, d, h, comm); };
  api.connect = [](void* c, int d, void* h, void** comm, void**) {
    return net.Connect(c, d, h, comm);
  };
  api.accept = Accept;
  api.regMr = RegMr;
  api.deregMr = DeregMr;
  api.isend = [](void* c, void* d, size_t n, int tag, void* mh, void*, void** r) {
    return net.Isend(c, d, n, tag, mh, r);
  };
  api.irecv = [](void* c, int, void** d, size_t* n, int* tag, void** mh, void**, void** r) {
    return net.Irecv(c, d[0], n[0], tag[0], mh[0], r);
  };
  api.test = Test;
  api.closeSend = CloseSend;
  api.closeRecv = CloseRecv;
  api.closeListen = CloseListen;
  api.finalize = [](void* context) {
    std::free(context);
    return ncclSuccess;
  };
  return api;
}

struct ApiV8 {
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

ApiV8 MakeV8() {
  ApiV8 api{};
  api.name = "FakeV8";
  api.init = [](PluginLogger) { return ncclSuccess; };
  api.devices = Devices;
  api.getProperties = Describe<NetPropertiesV8>;
  api.listen = [](int d, void* h, void** comm) { return net.Listen(nullptr, d, h, comm); };
  api.connect = [](int d, void* h, void** comm, void**) {
    return net.Connect(nullptr, d, h, comm);
  };
  api.accept = Accept;
  api.regMr = RegMr;
  api.deregMr = DeregMr;
  api.isend = [](void* c, void* d, int n, int tag, void* mh, void** r) {
    return net.Isend(c, d, static_cast<size_t>(n), tag, mh, r);
  };
  api.irecv = [](void* c, int, void** d, int* n, int* tag, void** mh, void** r) {
    return net.Irecv(c, d[0], static_cast<size_t>(n[0]), tag[0], mh[0], r);
  };
  api.test = Test;
  api.closeSend = CloseSend;
  api.closeRecv = CloseRecv;
  api.closeListen = CloseListen;
  return api;
}

struct TunerV4 {
  const char* name;
  ncclResult_t (*init)(size_t, size_t, PluginLogger, void** context);
  ncclResult_t (*getCollInfo)(void*, int, size_t, int, float** costs, int algorithms, int protocols,
                              int registered, int* channels);
  ncclResult_t (*destroy)(void*);
};

}  // namespace

#define EXPORT __attribute__((visibility("default")))
extern "C" {

EXPORT ApiV8 ncclNetPlugin_v8 = MakeV8();
EXPORT NetContextApi<PropertiesV11, 4> ncclNetPlugin_v11 = ContextApi<PropertiesV11, 4>("FakeV11");

EXPORT TunerV4 ncclTunerPlugin_v4 = {
    "FakeTuner",
    [](size_t, size_t, PluginLogger, void** context) {
      *context = nullptr;
      return ncclSuccess;
    },
    [](void*, int, size_t, int, float** costs, int, int protocols, int, int*) {
      const char* mode = std::getenv("FAKE_TUNER");
      if (mode != nullptr && std::strcmp(mode, "error") == 0) return ncclInternalError;
      // Makes the ring's Simple protocol win at every size.
      reinterpret_cast<float*>(costs)[kAlgorithmRing * protocols + kProtocolSimple] = 0.0f;
      return ncclSuccess;
    },
    [](void*) { return ncclSuccess; }};

}  // extern "C"

}  // namespace simnccl
