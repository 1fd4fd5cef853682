// Exports net ABI v8 (NCCL 2.20 to 2.23): sizes are int; one initialisation per process.
#include "net_plugin/abi/core_calls.h"

namespace rewire::net {
namespace {

ncclResult_t InitV8(Logger log) noexcept { return InitProcess(8, log); }

ncclResult_t IsendV8(void* sender, void* data, int bytes, int tag, void* mr,
                     void** request) noexcept {
  if (bytes < 0) return ncclInvalidArgument;
  return Core()->isend(sender, data, static_cast<size_t>(bytes), tag, mr, request);
}

ncclResult_t IrecvV8(void* receiver, int count, void** data, int* bytes, int* tags, void** mrs,
                     void** request) noexcept {
  *request = nullptr;
  if (count < 1 || count > kMaxRecvs) return ncclInvalidArgument;
  size_t sizes[kMaxRecvs] = {};
  for (int i = 0; i < count; ++i) {
    if (bytes[i] < 0) return ncclInvalidArgument;
    sizes[i] = static_cast<size_t>(bytes[i]);
  }
  return Core()->irecv(receiver, count, data, sizes, tags, mrs, request);
}

}  // namespace
}  // namespace rewire::net

using namespace rewire::net;

REWIRE_NET_EXPORT const NetV8 ncclNetPlugin_v8 = {kPluginName,     InitV8,
                                                  Devices,         GetProperties<PropertiesV8>,
                                                  ListenInProcess, ConnectInProcess,
                                                  AcceptOn,        Reg,
                                                  RegDmaBuf,       Dereg,
                                                  IsendV8,         IrecvV8,
                                                  Flush,           TestOf,
                                                  CloseSend,       CloseRecv,
                                                  CloseListen,     nullptr,
                                                  nullptr};
