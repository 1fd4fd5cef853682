// librewire.so's entry for the preloaded library. Called once, at the first communicator, under the
// preloaded library's lock. All objects made here are valid until the process ends, because the
// program's threads may be inside NCCL until then. Returns nullptr on a logged error.

#include <cstdlib>
#include <string_view>

#include "reconfig/abi/core_file.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/log.h"
#include "reconfig/base/settings.h"
#include "reconfig/elastic/participant/communicators.h"
#include "reconfig/elastic/participant/process.h"
#include "rewire/rewire_version.h"
#include "shim/core/device.h"
#include "shim/core/environment.h"
#include "shim/core/shim_communicators.h"
#include "shim/preload/core_abi.h"

#define REWIRE_TEXT(number) #number
#define REWIRE_VERSION_TEXT(major, minor) REWIRE_TEXT(major) "." REWIRE_TEXT(minor)

namespace rewire::shim {
namespace {

ShimCommunicators* communicators = nullptr;

// A forked child has none of the threads. This handler may run before the participant's.
void OnExit() {
  if (elastic::InForkedChild()) return;
  elastic::EndUse();
  communicators->OnExit();
}

void AtExit() {
  if (std::atexit(OnExit) != 0) REWIRE_WARN("atexit: failed: the exit may crash during a change");
}

}  // namespace
}  // namespace rewire::shim

static_assert(std::string_view(rewire::kCoreFile) ==
              "librewire.so." REWIRE_VERSION_TEXT(REWIRE_VERSION_MAJOR, REWIRE_VERSION_MINOR));

extern "C" __attribute__((visibility("default"))) const rewire::shim::CoreTable*
rewire_shim_core_start(uint32_t version, const rewire::shim::RealNccl* real,
                       const rewire::shim::ShimServices* services) noexcept {
  using rewire::shim::communicators;
  using rewire::shim::ShimCommunicators;
  if (version != rewire::shim::kCoreAbiVersion || real == nullptr || services == nullptr) {
    REWIRE_ERROR(
        "start librewire.so: core ABI=%u: the preloaded library has %u (mixed builds: install both "
        "from one "
        "build)",
        rewire::shim::kCoreAbiVersion, version);
    return nullptr;
  }
  std::string error;
  const rewire::CudaDriver* driver = rewire::CudaDriver::Get(&error);
  if (driver == nullptr) {
    REWIRE_ERROR("start librewire.so: communicators cannot be virtualised: %s", error.c_str());
    return nullptr;
  }
  const rewire::Settings& settings = rewire::Settings::Get();
  ShimCommunicators::Options options;
  options.build = rewire::milliseconds(settings.build_ms());
  options.decision = rewire::milliseconds(settings.decision_ms());
  options.retire = rewire::milliseconds(settings.retire_ms());
  auto* device = rewire::shim::DeviceOf(driver).release();
  communicators =
      new ShimCommunicators(rewire::shim::NcclCalls::From(*real), services, device, options);
  communicators->SetUsed(rewire::shim::AtExit);
  rewire::elastic::SetCommunicators(communicators);
  const auto events = rewire::elastic::EnsureParticipant();
  if (!events.ok()) {
    REWIRE_ERROR("start librewire.so: this process is not a member of a job: %s",
                 std::string(events.status().message()).c_str());
    return nullptr;
  }
  communicators->SetEvents(*events);
  // Before the participant's own exit handler, which waits: no first build may begin then.
  rewire::shim::AtExit();
  return rewire::shim::TableOf(communicators);
}
