// Exports net ABI v9 (NCCL 2.24 and 2.25): sizes are size_t; virtual devices.
#include "net_plugin/abi/core_calls.h"

namespace rewire::net {
namespace {

ncclResult_t InitV9(Logger log) noexcept { return InitProcess(9, log); }

ncclResult_t IsendV9(void* sender, void* data, size_t bytes, int tag, void* mr,
                     void** request) noexcept {
  return Isend(sender, data, bytes, tag, mr, nullptr, request);
}

ncclResult_t IrecvV9(void* receiver, int count, void** data, size_t* bytes, int* tags, void** mrs,
                     void** request) noexcept {
  return Irecv(receiver, count, data, bytes, tags, mrs, nullptr, request);
}

}  // namespace
}  // namespace rewire::net

using namespace rewire::net;

REWIRE_NET_EXPORT const NetV9 ncclNetPlugin_v9 = {kPluginName,     InitV9,
                                                  Devices,         GetProperties<PropertiesV9>,
                                                  ListenInProcess, ConnectInProcess,
                                                  AcceptOn,        Reg,
                                                  RegDmaBuf,       Dereg,
                                                  IsendV9,         IrecvV9,
                                                  Flush,           TestOf,
                                                  CloseSend,       CloseRecv,
                                                  CloseListen,     nullptr,
                                                  nullptr,         MakeVDevice<4>};
