// Exports net ABI v11 (NCCL 2.28 and 2.29): one context per communicator.
#include "net_plugin/abi/core_calls.h"

using namespace rewire::net;

REWIRE_NET_EXPORT const NetV11 ncclNetPlugin_v11 = {
    kPluginName, Init<11>,  Devices,   GetProperties<PropertiesV11>,
    ListenIn,    ConnectIn, AcceptOn,  Reg,
    RegDmaBuf,   Dereg,     Isend,     Irecv,
    Flush,       TestOf,    CloseSend, CloseRecv,
    CloseListen, nullptr,   nullptr,   MakeVDevice<4>,
    Finalize,    nullptr};
