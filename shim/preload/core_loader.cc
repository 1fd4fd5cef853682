#include "shim/preload/core_loader.h"

#include <dlfcn.h>

#include <atomic>
#include <string>

#include "reconfig/base/log.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/settings.h"
#include "shim/preload/library_search.h"
#include "shim/preload/pool.h"
#include "shim/preload/real_nccl.h"
#include "shim/preload/replay.h"

namespace rewire::shim {

namespace {

constexpr ShimServices kServices = {NewGeneration, ReplayLocal,    Publish,
                                    Quiesce,       FreeGeneration, Pledge};

std::atomic<const CoreTable*> core{nullptr};

// Opens the first core that it finds and appends the text of every failure to *why.
const CoreTable* Open(std::string* why) {
  const std::string own = OwnPath();
  const std::string folder = own.substr(0, own.rfind('/'));
  for (const std::string& path : {folder + "/librewire.so", folder + "/../lib/librewire.so"}) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      *why += std::string(why->empty() ? "" : "; ") + dlerror();
      continue;
    }
    auto start = reinterpret_cast<CoreStart>(dlsym(library, kCoreStartSymbol));
    if (start == nullptr) {
      *why = path + ": not Rewire's core (no symbol " + kCoreStartSymbol + ")";
      return nullptr;
    }
    const CoreTable* table = start(kCoreAbiVersion, Real(), &kServices);
    if (table == nullptr) *why = path + ": the core did not start, for the reason logged before";
    return table;
  }
  return nullptr;
}

}  // namespace

const CoreTable* Core() noexcept { return core.load(std::memory_order_acquire); }

ncclResult_t LoadCore() noexcept {
  if (Core() != nullptr || Settings::Get().socket().empty()) return ncclSuccess;
  static std::atomic<bool> failed{false};
  static auto* const mutex = new Mutex;
  MutexLock lock(mutex);
  if (Core() != nullptr) return ncclSuccess;
  if (failed.load(std::memory_order_relaxed)) return ncclSystemError;
  std::string why;
  const CoreTable* loaded = Open(&why);
  if (loaded == nullptr) {
    failed.store(true, std::memory_order_relaxed);
    LogLine(LogLevel::kError, "load core (REWIRE_SOCKET is set): the core cannot be loaded: %s",
            why.c_str());
    return ncclSystemError;
  }
  core.store(loaded, std::memory_order_release);
  return ncclSuccess;
}

const ShimServices* Services() noexcept { return &kServices; }
void SetCore(const CoreTable* table) noexcept { core.store(table, std::memory_order_release); }
void ForgetCore() noexcept { core.store(nullptr, std::memory_order_relaxed); }

}  // namespace rewire::shim
