// Exports net ABI v12 (since NCCL 2.30): eight devices per virtual device, rails and planes.
#include "net_plugin/abi/core_calls.h"

using namespace rewire::net;

REWIRE_NET_EXPORT const NetV12 ncclNetPlugin_v12 = {
    kPluginName, Init<12>,  Devices,   GetProperties<PropertiesV12>,
    ListenIn,    ConnectIn, AcceptOn,  Reg,
    RegDmaBuf,   Dereg,     Isend,     Irecv,
    Flush,       TestOf,    CloseSend, CloseRecv,
    CloseListen, nullptr,   nullptr,   MakeVDevice<8>,
    Finalize,    nullptr};
