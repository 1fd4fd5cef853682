#include "shim/preload/creation.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "shim/preload/core_loader.h"
#include "shim/preload/library_search.h"
#include "shim/preload/mode.h"
#include "shim/preload/real_nccl.h"
#include "shim/preload/thread_slot.h"

namespace rewire::shim {

namespace {

// NCCL's own limits are far below this limit.
constexpr size_t kMaxConfigBytes = 4096;

template <typename T>
bool Covers(size_t bytes, size_t offset) {
  return bytes >= offset + sizeof(T);
}

void KeepText(std::vector<unsigned char>* config, size_t offset, std::string* text) {
  if (!Covers<const char*>(config->size(), offset)) return;
  const char* given = nullptr;
  memcpy(&given, config->data() + offset, sizeof given);
  if (given == nullptr) return;
  if (given != text->data()) *text = given;
  const char* kept = text->c_str();
  memcpy(config->data() + offset, &kept, sizeof kept);
}

bool Blocking(const std::vector<unsigned char>& config) {
  // In NCCL the variable overrides the config.
  if (const char* variable = getenv("NCCL_COMM_BLOCKING")) {
    if (strcmp(variable, "0") == 0) return false;
    if (strcmp(variable, "1") == 0) return true;
  }
  int blocking = NCCL_CONFIG_UNDEF_INT;
  if (Covers<int>(config.size(), offsetof(ncclConfig_t, blocking))) {
    memcpy(&blocking, config.data() + offsetof(ncclConfig_t, blocking), sizeof blocking);
  }
  return blocking != 0;
}

}  // namespace

ncclResult_t ReadyToCreate() noexcept {
  const ncclResult_t settings = CheckSettings();
  if (settings != ncclSuccess) return settings;
  const RealNccl* real = Real();
  if (real->version != 0) WarnOfSecondLibrary(real->path);
  return LoadCore();
}

void KeepConfig(const ncclConfig_t* config, const Recipe* parent, Recipe* recipe) {
  if (config != nullptr) {
    // NCCL rejects a pointer that is not a config.
    if (config->magic == NCCL_CONFIG_MAGIC && config->size <= kMaxConfigBytes) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(config);
      recipe->config.assign(bytes, bytes + config->size);
    }
  } else if (parent != nullptr) {
    recipe->config = parent->config;
  }
  KeepText(&recipe->config, offsetof(ncclConfig_t, netName), &recipe->net_name);
  KeepText(&recipe->config, offsetof(ncclConfig_t, commName), &recipe->comm_name);
  recipe->blocking = Blocking(recipe->config);
}

void NoteIfReady(VirtualCommunicator* comm) noexcept {
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
  if (comm->told.exchange(Told::kClosing) != Told::kCreated) return;
  if (const CoreTable* core = Core()) core->closing(comm, aborting ? 1 : 0);
}

}  // namespace rewire::shim
