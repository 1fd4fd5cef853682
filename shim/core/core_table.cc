#include "shim/core/core_table.h"

namespace rewire::shim {

namespace {

ShimCommunicators* target = nullptr;

int Created(VirtualCommunicator* comm, ncclResult_t* result) noexcept {
  return target->OnCreated(comm, result);
}
void Closing(VirtualCommunicator* comm, int aborting) noexcept {
  target->OnClosing(comm, aborting != 0);
}
ncclResult_t AtCut(VirtualCommunicator* comm, CallSite site) noexcept {
  return target->AtCut(comm, site);
}
void BeforeCut(VirtualCommunicator* comm, CallSite site) noexcept { target->BeforeCut(comm, site); }
void Opened(VirtualCommunicator* comm) noexcept { target->OnOpened(comm); }
const char* LastError(VirtualCommunicator* comm) noexcept { return target->OnLastError(comm); }

constexpr CoreTable kTable = {kCoreAbiVersion, Created, Closing,  AtCut,
                              BeforeCut,       Opened,  LastError};

}  // namespace

const CoreTable* TableOf(ShimCommunicators* communicators) {
  target = communicators;
  return &kTable;
}

}  // namespace rewire::shim
