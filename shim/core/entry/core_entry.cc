// librewire.so's entry for the preloaded library. Called at the first communicator, with the
// preloaded library's own serialisation; everything here lives until the process ends, because the
// program's threads may be inside NCCL until then.

#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "reconfig/participant/communicators.h"
#include "shim/core/communicators.h"
#include "shim/core/driver_device.h"
#include "shim/core/nccl_calls.h"
#include "shim/core_abi.h"

namespace rewire::shim {

namespace {

ShimCommunicators* communicators = nullptr;

int Created(VirtualCommunicator* comm, ncclResult_t* result) noexcept {
  return communicators->OnCreated(comm, result);
}
void Opened(VirtualCommunicator* comm) noexcept { communicators->OnOpened(comm); }
void Closing(VirtualCommunicator* comm, int aborting) noexcept {
  communicators->OnClosing(comm, aborting != 0);
}
ncclResult_t AtCut(VirtualCommunicator* comm, CallSite site) noexcept {
  return communicators->AtCut(comm, site);
}
void BeforeCut(VirtualCommunicator* comm, CallSite site) noexcept {
  communicators->BeforeCut(comm, site);
}

const CoreTable kTable = {kCoreAbiVersion, Created, Closing, AtCut, BeforeCut, Opened};

}  // namespace

}  // namespace rewire::shim

extern "C" __attribute__((visibility("default"))) const rewire::shim::CoreTable*
rewire_shim_core_start(uint32_t version, const rewire::shim::RealNccl* real,
                       const rewire::shim::ShimServices* services) noexcept {
  using namespace rewire::shim;  // NOLINT: the entry is outside the namespace only for its name
  if (version != kCoreAbiVersion || real == nullptr || services == nullptr) return nullptr;
  if (communicators != nullptr) return &kTable;
  std::string error;
  const rewire::CudaDriver* driver = rewire::CudaDriver::Get(&error);
  if (driver == nullptr) {
    REWIRE_ERROR("communicators cannot be virtualised: %s", error.c_str());
    return nullptr;
  }
  const rewire::Settings& settings = rewire::Settings::Get();
  ShimCommunicators::Options options;
  options.build = rewire::milliseconds(settings.build_ms());
  options.decision = rewire::milliseconds(settings.decision_ms());
  options.retire = rewire::milliseconds(settings.retire_ms());
  static auto* device = new DriverDevice(driver);
  communicators = new ShimCommunicators(NcclCalls::From(*real), services, device, options);
  rewire::SetCommunicators(communicators);
  communicators->SetEvents(rewire::EnsureParticipant(false));
  return &kTable;
}
