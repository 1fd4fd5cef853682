// Adapts plugins of net ABI v12 (since NCCL 2.30): eight devices per virtual NIC, rails and planes.

#include "tests/simgpu/nccl/net_context_plugin.h"

namespace simnccl {
namespace {

struct Properties {
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
  NetVDevice<8> vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
};

}  // namespace

std::shared_ptr<Net> AdaptNetV12(void* symbol) {
  return std::make_shared<NetContextPlugin<Properties, 8>>(symbol);
}

}  // namespace simnccl
