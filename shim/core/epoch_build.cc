#include "shim/core/epoch_build.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "shim/core/warm_up.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);
constexpr size_t kScratchBytes = 256;

void Repoint(Recipe* recipe, size_t offset, const std::string& text) {
  if (recipe->config.size() < offset + sizeof(const char*)) return;
  const char* kept = nullptr;
  std::memcpy(&kept, recipe->config.data() + offset, sizeof kept);
  if (kept == nullptr) return;
  kept = text.c_str();
  std::memcpy(recipe->config.data() + offset, &kept, sizeof kept);
}

// The config for NCCL, with its own copies of the texts.
struct OwnConfig {
  explicit OwnConfig(const Recipe& of) : recipe(of) {
    Repoint(&recipe, offsetof(ncclConfig_t, netName), recipe.net_name);
    Repoint(&recipe, offsetof(ncclConfig_t, commName), recipe.comm_name);
  }
  OwnConfig(const OwnConfig&) = delete;
  OwnConfig& operator=(const OwnConfig&) = delete;
  [[nodiscard]] ncclConfig_t* get() const { return const_cast<ncclConfig_t*>(recipe.Config()); }
  Recipe recipe;
};

// Keeps the program's memory of a communicator while a thread may read its registrations, even when
// the program destroys the communicator meanwhile.
class User {
 public:
  explicit User(VirtualCommunicator* comm) : comm_(comm) {
    comm_->users.fetch_add(1, std::memory_order_seq_cst);
  }
  ~User() { comm_->users.fetch_sub(1, std::memory_order_release); }
  User(const User&) = delete;
  User& operator=(const User&) = delete;

 private:
  VirtualCommunicator* const comm_;
};

bool IsLost(Chain* chain) {
  MutexLock lock(&chain->mutex);
  return chain->lost;
}

}  // namespace

absl::Status EpochBuild::Run(BuildTask* task, LowPriority* priority,
                             std::vector<std::shared_ptr<Chain>>* chains) {
  for (size_t i = 0; i < task->builds.size(); ++i) {
    const elastic::CommunicatorBuild& build = task->builds[i];
    REWIRE_ASSIGN_OR_RETURN(std::shared_ptr<Chain> chain, Await(task, build.communicator));
    REWIRE_RETURN_IF_ERROR(device_->Enter(chain->context));
    REWIRE_RETURN_IF_ERROR(CheckMemory(std::span(task->builds).subspan(i), chain->context));
    chains->push_back(chain);
    REWIRE_RETURN_IF_ERROR(BuildOne(task, chain.get(), build, priority));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Chain>> EpochBuild::Await(BuildTask* task,
                                                         const CommunicatorId& id) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    bool may_come = false;
    if (std::shared_ptr<Chain> chain = site_->Find(id, &may_come)) return chain;
    if (!may_come) {
      return absl::NotFoundError(
          absl::StrCat("communicator ", Name(id), " does not exist in this process"));
    }
    task->Wait(std::min(task->deadline, Now() + milliseconds(50)));
  }
}

absl::Status EpochBuild::CheckMemory(std::span<const elastic::CommunicatorBuild> builds,
                                     DeviceContext context) {
  std::vector<OnDevice> ids;
  for (const elastic::CommunicatorBuild& build : builds) {
    ids.emplace_back(build.communicator, context);
  }
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_bytes, device_->FreeBytes());
  return ledger_->Check(ids, free_bytes);
}

absl::StatusOr<Link*> EpochBuild::NewLink(BuildTask* task, Chain* chain,
                                          const elastic::CommunicatorBuild& build) {
  auto link = std::make_unique<Link>();
  link->id = chain->id;
  link->epoch = task->epoch;
  link->ranks = build.ranks;
  link->rank = build.rank;
  link->blocking = chain->blocking;
  link->context = chain->context;
  REWIRE_ASSIGN_OR_RETURN(link->end_of_previous, device_->MakeEvent());
  link->generation = services_->new_generation(task->epoch, static_cast<int>(build.ranks),
                                               static_cast<int>(build.rank));
  if (link->generation == nullptr) {
    device_->DestroyEvent(link->end_of_previous);
    return absl::ResourceExhaustedError(absl::StrCat("build of communicator ", Name(chain->id),
                                                     ": no host memory for a generation"));
  }
  MutexLock lock(&chain->mutex);
  if (chain->scratch == nullptr) {
    absl::StatusOr<void*> scratch = device_->Allocate(kScratchBytes);
    if (scratch.ok()) chain->scratch = *scratch;
  }
  if (chain->current != nullptr) {
    link->generation->device.store(chain->current->generation->device.load());
  }
  return task->Add(std::move(link));
}

absl::Status EpochBuild::BuildOne(BuildTask* task, Chain* chain,
                                  const elastic::CommunicatorBuild& build, LowPriority* priority) {
  const BuildTurn turn(turns_);
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_before, device_->FreeBytes());
  REWIRE_ASSIGN_OR_RETURN(Link* const link, NewLink(task, chain, build));
  // After a loss the program waits for this build, so there is no training to disturb.
  if (IsLost(chain)) counters_->nice_refused += static_cast<uint64_t>(priority->End());
  const absl::Status status = Connect(task, chain, build, link);
  if (task->Left()) return status;
  counters_->nice_refused += static_cast<uint64_t>(priority->ReleaseMade());
  REWIRE_RETURN_IF_ERROR(status);
  REWIRE_ASSIGN_OR_RETURN(const uint64_t free_after, device_->FreeBytes());
  if (turn.Alone()) {
    ledger_->Record({chain->id, chain->context}, MemoryLedger::Maker::kBuilder, free_before,
                    free_after);
  }
  return absl::OkStatus();
}

absl::Status EpochBuild::Connect(BuildTask* task, Chain* chain,
                                 const elastic::CommunicatorBuild& build, Link* link) {
  if (build.unique_id.size() < NCCL_UNIQUE_ID_BYTES) {
    return absl::InvalidArgumentError(absl::StrCat("build of communicator ", Name(chain->id),
                                                   ": unique id: bytes=", build.unique_id.size(),
                                                   ": must be at least ", NCCL_UNIQUE_ID_BYTES));
  }
  std::string_view hints = std::string_view(build.unique_id).substr(NCCL_UNIQUE_ID_BYTES);
  const bool beside = hints.substr(0, kBeside.size()) == kBeside;
  if (beside) hints.remove_prefix(kBeside.size());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<UsageClass> usage, DecodeUsage(hints));
  ncclUniqueId id;
  std::memcpy(id.internal, build.unique_id.data(), sizeof id.internal);
  Generation* const generation = link->generation;
  const bool blocking = link->blocking;
  const auto ranks = static_cast<int>(build.ranks);
  const auto rank = static_cast<int>(build.rank);
  const auto failed = [&](const char* what, ncclResult_t r) {
    return absl::InternalError(absl::StrCat(what, " of communicator ", Name(chain->id), " as rank ",
                                            rank, " of ", ranks,
                                            ": ncclResult=", static_cast<int>(r)));
  };
  // A thread left inside NCCL uses only copies: the program may destroy its communicator.
  const NcclCalls nccl = *nccl_;
  const ShimServices* const services = services_;
  const OwnConfig config(chain->comm->recipe);
  ncclResult_t result = ncclSuccess;
  // The config variant of the function is required; loss.h has the reason.
  REWIRE_RETURN_IF_ERROR(task->InNccl(link, &result, [&] {
    return nccl.CommInitRankConfig(&generation->real, ranks, id, rank, config.get());
  }));
  if (result != ncclSuccess && result != ncclInProgress) return failed("creation", result);
  if (!blocking) REWIRE_RETURN_IF_ERROR(Settle(task, generation->Real()));
  {
    const User user(chain->comm);
    REWIRE_RETURN_IF_ERROR(
        task->InNccl(link, &result, [&] { return services->replay(chain->comm, generation); }));
  }
  if (result != ncclSuccess) return failed("replay of registrations", result);
  void* scratch = nullptr;
  {
    MutexLock lock(&chain->mutex);
    scratch = chain->scratch;
  }
  if (scratch == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("warm-up of communicator ", Name(chain->id),
                                                     ": no device memory: bytes=", kScratchBytes));
  }
  // On a non-blocking communicator the simulation would really launch.
  if (blocking) {
    REWIRE_RETURN_IF_ERROR(task->InNccl(
        link, &result, [&] { return Simulate(nccl, usage, generation->Real(), scratch); }));
    if (result != ncclSuccess) return failed("warm-up", result);
    counters_->warmed_classes += usage.size();
  }
  return beside ? RunBeside(task, chain, link, scratch) : absl::OkStatus();
}

absl::Status EpochBuild::RunBeside(BuildTask* task, Chain* chain, Link* link, void* scratch) {
  REWIRE_ASSIGN_OR_RETURN(const cudaStream_t stream, device_->MakeStream());
  Device* const device = device_;
  absl::Status status = [&]() -> absl::Status {
    const ncclComm_t comm = link->generation->Real();
    ncclResult_t result = ncclSuccess;
    REWIRE_RETURN_IF_ERROR(task->InNccl(link, &result, [&] {
      return nccl_->AllReduce(scratch, scratch, 1, ncclFloat32, ncclSum, comm, stream);
    }));
    if (result != ncclSuccess && result != ncclInProgress) {
      return absl::InternalError(
          absl::StrCat("first operation on a new generation of communicator ", Name(chain->id),
                       ": ncclResult=", static_cast<int>(result)));
    }
    if (!link->blocking) REWIRE_RETURN_IF_ERROR(Settle(task, comm));
    // The event is free until the generation is in use.
    if (!device_->Record(link->end_of_previous, stream)) {
      return absl::InternalError(
          absl::StrCat("first operation on a new generation of communicator ", Name(chain->id),
                       ": no event can be recorded after it"));
    }
    return AwaitBeside(task, chain, link->end_of_previous);
  }();
  device->DestroyStream(stream);
  if (status.ok()) {
    link->warmed = true;
    ++counters_->warmed_beside;
  }
  return status;
}

absl::Status EpochBuild::AwaitBeside(BuildTask* task, Chain* chain, DeviceEvent done) {
  uint64_t issued = chain->comm->issued.load(std::memory_order_relaxed);
  Time moved = Now();
  for (;;) {
    switch (device_->Query(done)) {
      case Device::EventState::kDone:
        return absl::OkStatus();
      case Device::EventState::kFailed:
        return absl::InternalError(
            absl::StrCat("first operation on a new generation of communicator ", Name(chain->id),
                         ": the device reported an error"));
      case Device::EventState::kPending:
        break;
    }
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    const uint64_t now_issued = chain->comm->issued.load(std::memory_order_relaxed);
    if (std::exchange(issued, now_issued) != now_issued) moved = Now();
    // A joiner, or a member whose generations were aborted, has no operation that could be blocked.
    if (issued != 0 && !IsLost(chain) && Now() - moved > stalled_) {
      // The two operations may block each other on some device. An abort of the new generation,
      // which no member uses yet, lets the old one continue. The attempt is not repeated.
      ++counters_->beside_refused;
      return absl::AbortedError(
          absl::StrCat("first operation on a new generation of communicator ", Name(chain->id),
                       ": not complete while the program issued no operation for ",
                       stalled_.count(), " ms (later builds run it at an agreed operation)"));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

absl::Status EpochBuild::Settle(BuildTask* task, ncclComm_t comm) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    ncclResult_t state = ncclInProgress;
    const ncclResult_t asked = nccl_->CommGetAsyncError(comm, &state);
    if (asked != ncclSuccess) state = asked;
    if (state == ncclSuccess) return absl::OkStatus();
    if (state != ncclInProgress) {
      return absl::InternalError(
          absl::StrCat("settle a non-blocking communicator: ncclResult=", static_cast<int>(state)));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace rewire::shim
