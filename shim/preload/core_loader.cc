#include "shim/preload/core_loader.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <string>

#include "reconfig/abi/core_file.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/base/log.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/settings.h"
#include "shim/preload/issue.h"
#include "shim/preload/library_search.h"
#include "shim/preload/pool.h"
#include "shim/preload/real_nccl.h"
#include "shim/preload/registration_list.h"
#include "shim/preload/thread_slot.h"

namespace rewire::shim {

namespace {

constexpr ShimServices kServices = {NewGeneration, ReplayLocal,    Registers, Publish,
                                    Quiesce,       FreeGeneration, Pledge,    ReportedLosses};

std::atomic<const CoreTable*> core{nullptr};
std::atomic<bool> creates_here{false};

// Opens the first core that it finds and appends the text of every failure to *why.
const CoreTable* Open(std::string* why) {
  const std::string own = OwnPath();
  const std::string folder = own.substr(0, own.rfind('/'));
  for (const std::string& path : {folder + "/" + kCoreFile, folder + "/../lib/" + kCoreFile}) {
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

// Logs one line per line of text, so that a long list is not truncated.
void LogLines(LogLevel level, const std::string& text) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    LogLine(level, "%s", text.substr(begin, end - begin).c_str());
    begin = end + 1;
  }
}

// Returns ncclInvalidUsage when a REWIRE_* value is wrong, and logs the error once. Warns once of
// unknown variables.
ncclResult_t CheckSettings() {
  static std::atomic<bool> said{false};
  const Settings& settings = Settings::Get();
  if (!said.exchange(true, std::memory_order_relaxed)) {
    if (LogEnabled(LogLevel::kWarn)) LogLines(LogLevel::kWarn, settings.Unknown());
    // Even with REWIRE_LOG=off the reason why no communicator can be made must be visible.
    LogLines(LogLevel::kError, settings.Error());
  }
  return settings.Error().empty() ? ncclSuccess : ncclInvalidUsage;
}

// Returns ncclSystemError when an agent exists and the core cannot be loaded. The error is logged
// once, with the paths.
ncclResult_t LoadCore() {
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

}  // namespace

const CoreTable* Core() noexcept { return core.load(std::memory_order_acquire); }

bool CreatesHere() noexcept { return creates_here.load(std::memory_order_relaxed); }

ncclResult_t ReadyToCreate() noexcept {
  creates_here.store(true, std::memory_order_relaxed);
  const ncclResult_t settings = CheckSettings();
  if (settings != ncclSuccess) return settings;
  const PostponedCancellation postponed;
  const RealNccl* real = Real();
  if (real->version != 0) WarnOfSecondLibrary(real->path);
  ShareWithNewObjects();
  return LoadCore();
}

void NoteIfReady(VirtualCommunicator* comm) noexcept {
  const PostponedCancellation postponed;
  const Inside inside(comm);
  Generation* generation = inside.generation();
  if (generation == nullptr || generation->Real() == nullptr ||
      generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    return;
  }
  const bool known = generation->device.load(std::memory_order_acquire) >= 0;
  const RealNccl* real = Real();
  if (!known) {
    ncclResult_t state = ncclInProgress;
    int ranks = -1;
    int rank = -1;
    int device = -1;
    if (real->CommGetAsyncError(generation->Real(), &state) != ncclSuccess ||
        state != ncclSuccess || real->CommCount(generation->Real(), &ranks) != ncclSuccess ||
        real->CommUserRank(generation->Real(), &rank) != ncclSuccess ||
        real->CommCuDevice(generation->Real(), &device) != ncclSuccess) {
      return;
    }
    generation->ranks.store(ranks, std::memory_order_relaxed);
    generation->rank.store(rank, std::memory_order_relaxed);
    generation->device.store(device, std::memory_order_release);
  }
  const CoreTable* core = Core();
  Told nothing = Told::kNothing;
  if (core == nullptr || !comm->told.compare_exchange_strong(nothing, Told::kCreated)) return;
  ncclResult_t ignored = ncclSuccess;
  core->created(comm, &ignored);
}

void TellClosing(VirtualCommunicator* comm, bool aborting) noexcept {
  const PostponedCancellation postponed;
  if (comm->told.exchange(Told::kClosing) != Told::kCreated) return;
  if (const CoreTable* core = Core()) core->closing(comm, aborting ? 1 : 0);
}

uint64_t FreeMemory(VirtualCommunicator* comm) noexcept {
  const PostponedCancellation postponed;
  const CoreTable* core = Core();
  return core != nullptr && comm->recipe.blocking ? core->free_memory(comm) : 0;
}

void TellTaken(VirtualCommunicator* comm, uint64_t free_before) noexcept {
  if (free_before == 0) return;
  const PostponedCancellation postponed;
  if (const CoreTable* core = Core()) core->took_memory(comm, free_before);
}

ncclResult_t AwaitFirst(VirtualCommunicator* comm) noexcept {
  if (!comm->awaits_first.load(std::memory_order_acquire)) return ncclSuccess;
  const PostponedCancellation postponed;
  const User user(comm);
  const CoreTable* core = Core();
  const ncclResult_t result = core == nullptr ? ncclSuccess : core->await_first(comm);
  if (result == ncclSuccess) comm->awaits_first.store(false, std::memory_order_release);
  return result;
}

void TellPinned(VirtualCommunicator* comm) noexcept {
  const PostponedCancellation postponed;
  if (comm->told.load() != Told::kCreated) return;
  if (const CoreTable* core = Core()) core->pinned(comm);
}

const ShimServices* Services() noexcept { return &kServices; }
void SetCore(const CoreTable* table) noexcept { core.store(table, std::memory_order_release); }
void ForgetCore() noexcept { core.store(nullptr, std::memory_order_relaxed); }

}  // namespace rewire::shim
