// A network plugin of any ABI version as an implementation of Net. This file has the parts that all
// versions share; one file per version (net_vN.cc) has the version's struct and its own parts.
// Threads: see net.h.
#pragma once

#include <memory>

#include "tests/simgpu/nccl/error.h"
#include "tests/simgpu/nccl/net.h"
#include "tests/simgpu/nccl/plugin_abi.h"

namespace simnccl {

std::shared_ptr<Net> AdaptNetV8(void* symbol);
std::shared_ptr<Net> AdaptNetV9(void* symbol);
std::shared_ptr<Net> AdaptNetV10(void* symbol);
std::shared_ptr<Net> AdaptNetV11(void* symbol);
std::shared_ptr<Net> AdaptNetV12(void* symbol);

// `Api`: the version's struct of functions; `Properties`: the version's properties.
template <typename Api, typename Properties>
class NetPlugin : public Net {
 public:
  explicit NetPlugin(void* symbol) : api_(static_cast<const Api*>(symbol)) {}
  [[nodiscard]] std::string name() const override { return api_->name; }

  ncclResult_t Devices(int* count) override { return api_->devices(count); }
  ncclResult_t GetProperties(int device, NetProperties* out) override {
    Properties properties{};
    SIMNCCL_TRY(api_->getProperties(device, &properties));
    if (properties.netDeviceType != 0) {
      return Fail(ncclInternalError, "NET/%s: device offload is not supported", api_->name);
    }
    out->ptr_support = properties.ptrSupport;
    out->max_comms = properties.maxComms;
    out->max_recvs = properties.maxRecvs;
    if constexpr (requires { properties.maxP2pBytes; }) {
      constexpr size_t kMax = size_t{1} << 40;
      if (properties.maxP2pBytes == 0 || properties.maxP2pBytes > kMax ||
          properties.maxCollBytes == 0 || properties.maxCollBytes > kMax) {
        return Fail(ncclInternalError, "NET/%s: maxP2pBytes or maxCollBytes out of range",
                    api_->name);
      }
      out->max_p2p_bytes = properties.maxP2pBytes;
      out->max_coll_bytes = properties.maxCollBytes;
    } else {
      out->max_p2p_bytes = out->max_coll_bytes = size_t{1} << 30;
    }
    return ncclSuccess;
  }
  ncclResult_t Accept(void* listen_comm, void** recv_comm) override {
    void* device_handle = nullptr;
    return api_->accept(listen_comm, recv_comm, &device_handle);
  }
  ncclResult_t RegMr(void* comm, void* data, size_t bytes, int type, void** mh) override {
    return api_->regMr(comm, data, bytes, type, mh);
  }
  ncclResult_t DeregMr(void* comm, void* mh) override { return api_->deregMr(comm, mh); }
  ncclResult_t Test(void* request, int* done, int* bytes) override {
    return api_->test(request, done, bytes);
  }
  ncclResult_t CloseSend(void* comm) override { return api_->closeSend(comm); }
  ncclResult_t CloseRecv(void* comm) override { return api_->closeRecv(comm); }
  ncclResult_t CloseListen(void* comm) override { return api_->closeListen(comm); }

 protected:
  const Api* api() const { return api_; }

 private:
  const Api* const api_;
};

// The unchanged part of each struct, in two pieces around isend and irecv.
#define SIMNCCL_NET_MEMORY_CALLS                                                              \
  ncclResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** mhandle);       \
  ncclResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, \
                              int fd, void** mhandle);                                        \
  ncclResult_t (*deregMr)(void* comm, void* mhandle);
#define SIMNCCL_NET_REQUEST_CALLS                                                     \
  ncclResult_t (*iflush)(void* comm, int n, void** data, int* sizes, void** mhandles, \
                         void** request);                                             \
  ncclResult_t (*test)(void* request, int* done, int* sizes);                         \
  ncclResult_t (*closeSend)(void* comm);                                              \
  ncclResult_t (*closeRecv)(void* comm);                                              \
  ncclResult_t (*closeListen)(void* comm);                                            \
  ncclResult_t (*getDeviceMr)(void* comm, void* mhandle, void** device_mhandle);      \
  ncclResult_t (*irecvConsumed)(void* comm, int n, void* request);

// Properties up to v8, and from v9 to v12 with `Devices` per virtual NIC.
struct NetPropertiesV8 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
};

template <int kDevices>
struct NetVDevice {
  int ndevs;
  int devs[kDevices];
};

struct NetPropertiesV9 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  NetVDevice<4> vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
};

struct NetCommConfig {
  int trafficClass;
};

}  // namespace simnccl
