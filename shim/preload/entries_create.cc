// The entries that make communicators. Called on the application's threads.
#include <sys/random.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <new>

#include "reconfig/base/cancellation.h"
#include "reconfig/base/log.h"
#include "reconfig/world/identity.h"
#include "rewire_entries.h"
#include "shim/preload/core_loader.h"
#include "shim/preload/issue.h"
#include "shim/preload/pool.h"

namespace rewire::shim {

namespace {

ncclComm_t Handle(VirtualCommunicator* comm) { return reinterpret_cast<ncclComm_t>(comm); }

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

// Copies the application's config (may be nullptr) into the recipe. A child without a config takes
// the config of its parent.
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

// Makes a communicator with an empty generation.
VirtualCommunicator* Begin(Creation creation, int ranks, int rank, bool in_group) {
  VirtualCommunicator* comm = NewCommunicator();
  if (comm == nullptr) return nullptr;
  Generation* generation = NewGeneration(0, ranks, rank);
  if (generation == nullptr) {
    DropCommunicator(comm);
    return nullptr;
  }
  comm->recipe.creation = creation;
  comm->recipe.in_group = in_group;
  // Joining ranks and existing ranks share no data that could identify the communicator.
  if (creation == Creation::kGrow) AddPin(comm, Pin::kGrown);
  // Without a core nothing is ever swapped, so captured graphs do not matter.
  comm->watch_capture.store(Core() != nullptr && FindDriver(), std::memory_order_relaxed);
  Publish(comm, generation);
  return comm;
}

// Drops a communicator that was not created, unless another thread is aborting it, which drops it.
void DropUncreated(VirtualCommunicator* comm) noexcept {
  TellClosing(comm, true);
  if (!comm->closing.exchange(true, std::memory_order_acq_rel)) DropCommunicator(comm);
}

// Drops a communicator whose creation was left before its end: by a cancelled thread, or without
// memory. The real communicator stays as NCCL left it.
class UnfinishedCreation {
 public:
  UnfinishedCreation(VirtualCommunicator* comm, ncclComm_t* out) noexcept
      : user_(comm), comm_(comm), out_(out) {}
  ~UnfinishedCreation() {
    if (comm_ == nullptr) return;
    *out_ = nullptr;
    DropUncreated(comm_);
  }
  UnfinishedCreation(const UnfinishedCreation&) = delete;
  UnfinishedCreation& operator=(const UnfinishedCreation&) = delete;
  void Finish() noexcept { comm_ = nullptr; }

 private:
  const User user_;  // another thread may abort and drop the communicator meanwhile
  VirtualCommunicator* comm_;
  ncclComm_t* const out_;
};

// Ends a creation after NCCL's answer: keeps the handle, or drops it after an error.
ncclResult_t End(VirtualCommunicator* comm, ThreadSlot* slot, ncclResult_t result,
                 ncclComm_t* out) {
  if (!Taken(result)) {
    *out = nullptr;
    DropUncreated(comm);
    return result;
  }
  if (slot->group_depth == 0) {
    NoteIfReady(comm);
  } else if (GroupState* group = ThisGroup(slot)) {
    group->created.push_back(comm);
  }
  return result;
}

// NCCL works on the generation until the call has returned, or until the end of the call's group.
// The generation and its real communicator must not be freed before.
template <typename Call>
ncclResult_t CallInside(Generation* generation, Call&& call) {
  HoldInOpenGroup(generation);
  const ncclResult_t result = call();
  // After a loss in between, the core ends the real communicator.
  return generation->state.load(std::memory_order_acquire) == GenerationState::kOpen
             ? result
             : Failed(*generation, result);
}

template <typename Call>
ncclResult_t FromIds(Creation creation, ncclComm_t* out, int ranks, int rank,
                     const ncclUniqueId* ids, int id_count, const ncclConfig_t* config,
                     Call&& call) {
  // NCCL refuses these arguments. The agent would take such a rank for a broken message.
  const bool refused =
      out == nullptr || ids == nullptr || id_count <= 0 || rank < 0 || rank >= ranks;
  if (refused) return call(out);
  const ncclResult_t ready = ReadyToCreate();
  if (ready != ncclSuccess) return ready;
  try {
    ThreadSlot* slot = Slot();
    VirtualCommunicator* comm = Begin(creation, ranks, rank, slot->group_depth > 0);
    if (comm == nullptr) return ncclSystemError;
    UnfinishedCreation unfinished(comm, out);
    comm->first_id = IdentityOfUniqueId(&ids[0]);
    comm->recipe.ids.assign(ids, ids + id_count);
    KeepConfig(config, nullptr, &comm->recipe);
    ncclResult_t result = ncclSuccess;
    bool core_made = false;
    uint64_t free_before = 0;
    {
      const Inside inside(comm);
      Generation* generation = inside.generation();
      // Stored early, so that another thread can poll or abort while this one waits for its peers.
      __atomic_store_n(out, Handle(comm), __ATOMIC_RELEASE);
      if (const CoreTable* core = Core()) {
        const PostponedCancellation postponed;
        comm->told.store(Told::kCreated);
        core_made = core->created(comm, &result) == 1;
        comm->awaits_first.store(core_made && Taken(result), std::memory_order_release);
      }
      if (!core_made) {
        if (slot->group_depth == 0) free_before = FreeMemory(comm);
        result = CallInside(generation, [&] { return call(&generation->real); });
      }
    }
    unfinished.Finish();
    if (core_made && Taken(result)) return result;
    result = End(comm, slot, result, out);
    if (result == ncclSuccess) TellTaken(comm, free_before);
    return result;
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  }
}

// Makes a child of `parent`. identify returns the child's identity. call takes the real parent and
// the place where NCCL stores the real child.
template <typename Identify, typename Call>
ncclResult_t FromParent(Creation creation, VirtualCommunicator* parent, bool is_in, ncclComm_t* out,
                        const ncclConfig_t* config, Identify&& identify, Call&& call) {
  const ncclResult_t first = AwaitFirst(parent);
  if (first != ncclSuccess) return first;
  const Inside inside(parent);
  Generation* generation = inside.generation();
  if (generation == nullptr) return ncclInvalidUsage;
  if (generation->state.load(std::memory_order_acquire) != GenerationState::kOpen) {
    return Failed(*generation, ncclInternalError);
  }
  try {
    // Every rank counts, in the child or not, so that all ranks count alike.
    const CommunicatorId id = identify();
    if (!is_in) {
      // NCCL's thread may store the NULL later, so the target must be static memory.
      static ncclComm_t nobody = nullptr;
      *out = nullptr;
      HoldInOpenGroup(generation);
      const Calling calling = CallingOn(parent, generation);
      return Judged(*generation, call(generation->Real(), &nobody));
    }
    ThreadSlot* slot = Slot();
    VirtualCommunicator* comm = Begin(creation, -1, -1, slot->group_depth > 0);
    if (comm == nullptr) return ncclSystemError;
    UnfinishedCreation unfinished(comm, out);
    comm->first_id = id;
    comm->pins.fetch_or(
        parent->pins.load(std::memory_order_relaxed) & static_cast<uint32_t>(Pin::kGrown),
        std::memory_order_relaxed);
    comm->parent.store(parent, std::memory_order_relaxed);
    KeepConfig(config, &parent->recipe, &comm->recipe);
    Generation* child = comm->current.load(std::memory_order_relaxed);
    __atomic_store_n(out, Handle(comm), __ATOMIC_RELEASE);
    HoldInOpenGroup(generation);
    const uint64_t free_before =
        slot->group_depth == 0 && comm->recipe.blocking ? FreeMemory(parent) : 0;
    ncclResult_t result = [&] {
      const Calling calling = CallingOn(parent, generation);
      return call(generation->Real(), &child->real);
    }();
    unfinished.Finish();
    result = End(comm, slot, Judged(*generation, result), out);
    if (result == ncclSuccess) TellTaken(comm, free_before);
    return result;
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  }
}

CommunicatorId NextChild(VirtualCommunicator* parent, int64_t color) {
  return IdentityOfChild(parent->id(), parent->children.fetch_add(1, std::memory_order_relaxed),
                         color);
}

}  // namespace

namespace entry {

ncclResult_t CommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank) {
  // Equals ncclCommInitRank, except that NCCL does not free the communicator when the call fails.
  // Another thread may be ending the communicator at that moment (shim/core/loss.h).
  return FromIds(Creation::kInitRank, comm, nranks, rank, &commId, 1, nullptr,
                 [&](ncclComm_t* out) {
                   return Real()->CommInitRankConfig(out, nranks, commId, rank, nullptr);
                 });
}

ncclResult_t CommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId commId, int rank,
                                ncclConfig_t* config) {
  return FromIds(Creation::kInitRank, comm, nranks, rank, &commId, 1, config, [&](ncclComm_t* out) {
    return Real()->CommInitRankConfig(out, nranks, commId, rank, config);
  });
}

ncclResult_t CommInitRankScalable(ncclComm_t* newcomm, int nranks, int myrank, int nId,
                                  ncclUniqueId* commIds, ncclConfig_t* config) {
  return FromIds(Creation::kInitRankScalable, newcomm, nranks, myrank, commIds, nId, config,
                 [&](ncclComm_t* out) {
                   return Real()->CommInitRankScalable(out, nranks, myrank, nId, commIds, config);
                 });
}

ncclResult_t CommInitAll(ncclComm_t* comm, int ndev, const int* devlist) {
  const ncclResult_t ready = ReadyToCreate();
  if (ready != ncclSuccess) return ready;
  if (comm == nullptr || ndev <= 0) return Real()->CommInitAll(comm, ndev, devlist);
  try {
    std::vector<ncclComm_t> real(static_cast<size_t>(ndev));
    const ncclResult_t result = Real()->CommInitAll(real.data(), ndev, devlist);
    if (!Taken(result)) return result;
    // All ranks are in this process, so a random identity suffices.
    CommunicatorId id{};
    if (getrandom(&id, sizeof id, 0) != sizeof id || id == kUpdateBoundary) id.low = 1;
    for (int i = 0; i < ndev; ++i) {
      VirtualCommunicator* made = Begin(Creation::kInitAll, ndev, i, Slot()->group_depth > 0);
      if (made == nullptr) return ncclSystemError;
      made->first_id = id;
      KeepConfig(nullptr, nullptr, &made->recipe);
      __atomic_store_n(&made->current.load(std::memory_order_relaxed)->real,
                       real[static_cast<size_t>(i)], __ATOMIC_RELEASE);
      comm[i] = Handle(made);
      End(made, Slot(), result, &comm[i]);
    }
    return result;
  } catch (const std::bad_alloc&) {
    return ncclSystemError;
  }
}

ncclResult_t CommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                       ncclConfig_t* config) {
  VirtualCommunicator* parent = Ours(comm);
  if (parent == nullptr || newcomm == nullptr) {
    const ncclResult_t refused = parent == nullptr ? Foreign(comm) : ncclInvalidArgument;
    return refused != ncclSuccess ? refused : Real()->CommSplit(comm, color, key, newcomm, config);
  }
  return FromParent(
      Creation::kSplit, parent, color != NCCL_SPLIT_NOCOLOR, newcomm, config,
      [&] { return NextChild(parent, color); },
      [&](ncclComm_t real, ncclComm_t* out) {
        return Real()->CommSplit(real, color, key, out, config);
      });
}

ncclResult_t CommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                        ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
  VirtualCommunicator* parent = Ours(comm);
  if (parent == nullptr || newcomm == nullptr) {
    const ncclResult_t refused = parent == nullptr ? Foreign(comm) : ncclInvalidArgument;
    return refused != ncclSuccess ? refused
                                  : Real()->CommShrink(comm, excludeRanksList, excludeRanksCount,
                                                       newcomm, config, shrinkFlags);
  }
  const ncclResult_t result = FromParent(
      Creation::kShrink, parent, true, newcomm, config,
      [&] {
        std::vector<int> excluded;
        if (excludeRanksList != nullptr && excludeRanksCount > 0) {
          excluded.assign(excludeRanksList, excludeRanksList + excludeRanksCount);
        }
        std::sort(excluded.begin(), excluded.end());
        return IdentityOfShrunk(parent->id(), parent->shrinks[excluded]++, excluded);
      },
      [&](ncclComm_t real, ncclComm_t* out) {
        return Real()->CommShrink(real, excludeRanksList, excludeRanksCount, out, config,
                                  shrinkFlags);
      });
  // Such a parent can only be aborted afterwards, so no change may use it.
  if (Taken(result) && (shrinkFlags & NCCL_SHRINK_ABORT) != 0) TellClosing(parent, true);
  return result;
}

ncclResult_t CommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank,
                      ncclComm_t* newcomm, ncclConfig_t* config) {
  const auto call = [&](ncclComm_t real, ncclComm_t* out) {
    return Real()->CommGrow(real, nRanks, uniqueId, rank, out, config);
  };
  if (newcomm == nullptr) return ncclInvalidArgument;
  if (comm == nullptr) {
    return FromIds(Creation::kGrow, newcomm, nRanks, rank, uniqueId, uniqueId == nullptr ? 0 : 1,
                   config, [&](ncclComm_t* out) { return call(nullptr, out); });
  }
  VirtualCommunicator* parent = Ours(comm);
  if (parent == nullptr) {
    const ncclResult_t refused = Foreign(comm);
    return refused != ncclSuccess ? refused : call(comm, newcomm);
  }
  return FromParent(
      Creation::kGrow, parent, true, newcomm, config, [&] { return NextChild(parent, nRanks); },
      call);
}

}  // namespace entry
}  // namespace rewire::shim
