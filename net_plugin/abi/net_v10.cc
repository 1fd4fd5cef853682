// Exports net ABI v10 (NCCL 2.26 and 2.27): profiler handles; connect() passes the traffic class.
#include "net_plugin/abi/core_calls.h"

namespace rewire::net {
namespace {

ncclResult_t InitV10(Logger log, Profiler) noexcept { return InitProcess(10, log); }

ncclResult_t ConnectV10(int device, CommConfig*, void* handle, void** sender,
                        void** device_handle) noexcept {
  return ConnectInProcess(device, handle, sender, device_handle);
}

}  // namespace
}  // namespace rewire::net

using namespace rewire::net;

REWIRE_NET_EXPORT const NetV10 ncclNetPlugin_v10 = {
    kPluginName,     InitV10,    Devices,   GetProperties<PropertiesV9>,
    ListenInProcess, ConnectV10, AcceptOn,  Reg,
    RegDmaBuf,       Dereg,      Isend,     Irecv,
    Flush,           TestOf,     CloseSend, CloseRecv,
    CloseListen,     nullptr,    nullptr,   MakeVDevice<4>};
