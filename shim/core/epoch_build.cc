#include "shim/core/epoch_build.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "shim/core/ranks_here.h"
#include "shim/core/warm_up.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);
// A longer pause between two polls is the host's: this thread has low priority.
constexpr milliseconds kLongestPoll(10);
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

// Returns "first operation on a new generation of communicator ID: what".
std::string FirstOperation(const CommunicatorId& id, const std::string& what) {
  return absl::StrCat("first operation on a new generation of communicator ", Name(id), ": ", what);
}

// The memory of the tiny operation of each rank.
absl::StatusOr<std::vector<void*>> ScratchOf(std::span<const std::shared_ptr<Chain>> chains) {
  std::vector<void*> scratch;
  for (const std::shared_ptr<Chain>& chain : chains) {
    MutexLock lock(&chain->mutex);
    if (chain->scratch == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("warm-up of communicator ", Name(chain->id),
                       ": no device memory: bytes=", kScratchBytes));
    }
    scratch.push_back(chain->scratch);
  }
  return scratch;
}

}  // namespace

absl::Status EpochBuild::Run(BuildTask* task, LowPriority* priority,
                             std::vector<std::shared_ptr<Chain>>* chains) {
  uint64_t taken = 0;
  for (size_t i = 0; i < task->builds.size(); ++i) {
    const elastic::CommunicatorBuild& build = task->builds[i];
    REWIRE_ASSIGN_OR_RETURN(const Chains ranks, Await(task, build));
    // After a loss the program waits for this build and has no kernel on the device.
    if (i == 0 && !IsLost(ranks.front().get())) REWIRE_RETURN_IF_ERROR(AwaitQuiet(task));
    REWIRE_ASSIGN_OR_RETURN(const uint64_t expected,
                            CheckMemory(std::span(task->builds).subspan(i)));
    if (i == 0) SetCounter(Counter::kShimBuildExpected, expected);
    chains->insert(chains->end(), ranks.begin(), ranks.end());
    REWIRE_RETURN_IF_ERROR(BuildOne(task, ranks, build, priority, &taken));
    SetCounter(Counter::kShimBuildTaken, taken);
  }
  return absl::OkStatus();
}

absl::StatusOr<EpochBuild::Chains> EpochBuild::Await(BuildTask* task,
                                                     const elastic::CommunicatorBuild& build) {
  for (;;) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    bool may_come = false;
    Chains ranks = site_->Find(build.communicator, &may_come);
    if (!ranks.empty() && ranks.size() == build.held.size()) return ranks;
    if (ranks.empty() && !may_come) {
      return absl::NotFoundError(absl::StrCat("communicator ", Name(build.communicator),
                                              " does not exist in this process"));
    }
    if (!may_come || ranks.size() > build.held.size()) {
      // The program makes or destroys ranks; the leader will hear of it.
      return absl::AbortedError(absl::StrCat("communicator ", Name(build.communicator), " has ",
                                             ranks.size(), " ranks in this process, not ",
                                             build.held.size()));
    }
    task->Wait(std::min(task->deadline, Now() + milliseconds(50)));
  }
}

absl::Status EpochBuild::AwaitQuiet(BuildTask* task) {
  const Time begun = Now();
  const Time until = begun + (task->deadline - begun) / 4;
  while (!site_->Quiet()) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    if (Now() >= until) {
      REWIRE_WARN(
          "build of epoch %llu: begins while old generations are still being destroyed: they were "
          "not within %lld ms",
          static_cast<unsigned long long>(task->epoch),
          static_cast<long long>(std::chrono::duration_cast<milliseconds>(Now() - begun).count()));
      break;
    }
    task->Wait(std::min(until, Now() + kPoll));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> EpochBuild::CheckMemory(
    std::span<const elastic::CommunicatorBuild> builds) {
  std::map<DeviceContext, std::vector<OnDevice>> devices;
  for (const elastic::CommunicatorBuild& build : builds) {
    bool may_come = false;
    for (const std::shared_ptr<Chain>& chain : site_->Find(build.communicator, &may_come)) {
      devices[chain->context].emplace_back(build.communicator, chain->context);
    }
  }
  uint64_t expected = 0;
  for (const auto& [context, communicators] : devices) {
    REWIRE_RETURN_IF_ERROR(device_->Enter(context));
    REWIRE_ASSIGN_OR_RETURN(const uint64_t free_bytes, device_->FreeBytes());
    REWIRE_RETURN_IF_ERROR(ledger_->Check(communicators, free_bytes));
    expected += ledger_->Expected(communicators);
  }
  return expected;
}

absl::StatusOr<std::vector<uint64_t>> EpochBuild::FreeBytes(const Chains& chains) {
  std::vector<uint64_t> all;
  for (const std::shared_ptr<Chain>& chain : chains) {
    REWIRE_RETURN_IF_ERROR(device_->Enter(chain->context));
    REWIRE_ASSIGN_OR_RETURN(const uint64_t free_bytes, device_->FreeBytes());
    all.push_back(free_bytes);
  }
  return all;
}

absl::StatusOr<Link*> EpochBuild::NewLink(BuildTask* task, Chain* chain, uint32_t ranks,
                                          uint32_t rank) {
  auto link = std::make_unique<Link>();
  link->id = chain->id;
  link->epoch = task->epoch;
  link->ranks = ranks;
  link->rank = rank;
  link->blocking = chain->blocking;
  link->context = chain->context;
  REWIRE_RETURN_IF_ERROR(device_->Enter(chain->context));
  REWIRE_ASSIGN_OR_RETURN(link->end_of_previous, device_->MakeEvent());
  link->generation =
      services_->new_generation(task->epoch, static_cast<int>(ranks), static_cast<int>(rank));
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

absl::Status EpochBuild::BuildOne(BuildTask* task, const Chains& chains,
                                  const elastic::CommunicatorBuild& build, LowPriority* priority,
                                  uint64_t* taken) {
  const MemoryTurn turn(ledger_->turns());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<uint64_t> free_before, FreeBytes(chains));
  std::vector<Link*> links;
  for (size_t i = 0; i < chains.size(); ++i) {
    REWIRE_ASSIGN_OR_RETURN(Link* const link,
                            NewLink(task, chains[i].get(), build.ranks, build.held[i]));
    links.push_back(link);
  }
  // After a loss the program waits for this build, so there is no training to disturb.
  if (IsLost(chains.front().get())) {
    counters_->nice_refused += static_cast<uint64_t>(priority->End());
  }
  const absl::Status status = Connect(task, chains, build, links);
  if (task->Left()) return status;
  counters_->nice_refused += static_cast<uint64_t>(priority->ReleaseMade());
  REWIRE_RETURN_IF_ERROR(status);
  REWIRE_ASSIGN_OR_RETURN(const std::vector<uint64_t> free_after, FreeBytes(chains));
  for (size_t i = 0; i < chains.size() && turn.Alone(); ++i) {
    ledger_->Record({build.communicator, chains[i]->context}, MemoryLedger::Maker::kBuilder,
                    free_before[i], free_after[i]);
  }
  for (size_t i = 0; i < chains.size(); ++i) {
    // Ranks that share a device saw the same fall.
    const bool counted =
        std::any_of(chains.begin(), chains.begin() + static_cast<ptrdiff_t>(i),
                    [&](const auto& c) { return c->context == chains[i]->context; });
    if (!counted && free_before[i] > free_after[i]) *taken += free_before[i] - free_after[i];
  }
  return absl::OkStatus();
}

absl::Status EpochBuild::Connect(BuildTask* task, const Chains& chains,
                                 const elastic::CommunicatorBuild& build, Ranks links) {
  if (build.unique_id.size() < NCCL_UNIQUE_ID_BYTES) {
    return absl::InvalidArgumentError(absl::StrCat("build of communicator ",
                                                   Name(build.communicator),
                                                   ": unique id: bytes=", build.unique_id.size(),
                                                   ": must be at least ", NCCL_UNIQUE_ID_BYTES));
  }
  std::string_view hints = std::string_view(build.unique_id).substr(NCCL_UNIQUE_ID_BYTES);
  const bool beside = hints.substr(0, kBeside.size()) == kBeside;
  if (beside) hints.remove_prefix(kBeside.size());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<UsageClass> usage, DecodeUsage(hints));
  ncclUniqueId id;
  std::memcpy(id.internal, build.unique_id.data(), sizeof id.internal);
  const bool blocking = links.front()->blocking;
  const auto failed = [&](const char* what, ncclResult_t r) {
    return absl::InternalError(absl::StrCat(what, " of communicator ", Name(build.communicator),
                                            " as rank ", absl::StrJoin(build.held, ", "), " of ",
                                            build.ranks, ": ncclResult=", static_cast<int>(r)));
  };
  // A thread left inside NCCL uses only copies: the program may destroy its communicator.
  const NcclCalls nccl = *nccl_;
  const ShimServices* const services = services_;
  Device* const device = device_;
  const std::vector<DeviceContext> contexts = ContextsOf(links);
  const std::vector<Generation*> generations = GenerationsOf(links);
  std::deque<OwnConfig> configs;
  for (const std::shared_ptr<Chain>& chain : chains) configs.emplace_back(chain->comm->recipe);
  ncclResult_t result = ncclSuccess;
  // The config variant of the function is required; loss.h has the reason.
  REWIRE_RETURN_IF_ERROR(task->InNccl(links, &result, [&] {
    return ForEachRank(nccl, device, contexts, [&](size_t i) {
      return nccl.CommInitRankConfig(&generations[i]->real, static_cast<int>(build.ranks), id,
                                     static_cast<int>(build.held[i]), configs[i].get());
    });
  }));
  if (result != ncclSuccess && result != ncclInProgress) return failed("creation", result);
  for (size_t i = 0; i < chains.size(); ++i) {
    if (!blocking) REWIRE_RETURN_IF_ERROR(Settle(task, generations[i]->Real()));
    REWIRE_RETURN_IF_ERROR(device_->Enter(contexts[i]));
    const User user(chains[i]->comm);
    REWIRE_RETURN_IF_ERROR(task->InNccl(links.subspan(i, 1), &result, [&] {
      return services->replay(chains[i]->comm, generations[i]);
    }));
    if (result != ncclSuccess) return failed("replay of registrations", result);
  }
  REWIRE_ASSIGN_OR_RETURN(const std::vector<void*> scratch, ScratchOf(chains));
  // On a non-blocking communicator the simulation would really launch.
  if (blocking) {
    std::vector<ncclComm_t> comms;
    for (const Generation* generation : generations) comms.push_back(generation->Real());
    REWIRE_RETURN_IF_ERROR(
        task->InNccl(links, &result, [&] { return Simulate(nccl, usage, comms, scratch); }));
    if (result != ncclSuccess) return failed("warm-up", result);
    counters_->warmed_classes += usage.size();
  }
  return beside ? RunBeside(task, chains, links) : absl::OkStatus();
}

absl::Status EpochBuild::RunBeside(BuildTask* task, const Chains& chains, Ranks links) {
  std::vector<cudaStream_t> streams;
  absl::Status status;
  for (size_t i = 0; i < links.size() && status.ok(); ++i) {
    status = device_->Enter(links[i]->context);
    if (!status.ok()) break;
    absl::StatusOr<cudaStream_t> stream = device_->MakeStream();
    status = stream.status();
    if (status.ok()) streams.push_back(*stream);
  }
  // A thread left inside NCCL uses only copies.
  Device* const device = device_;
  const std::vector<DeviceContext> contexts = ContextsOf(links);
  if (status.ok()) status = IssueBeside(task, chains, links, streams);
  for (size_t i = 0; i < streams.size(); ++i) {
    if (!status.ok() && !task->Left() && !links[i]->blocking) {
      links[i]->launching = streams[i];
    } else if (device->Enter(contexts[i]).ok()) {
      device->DestroyStream(streams[i]);
    }
  }
  if (!status.ok()) return status;
  for (Link* link : links) link->warmed = true;
  ++counters_->warmed_beside;
  return absl::OkStatus();
}

absl::Status EpochBuild::IssueBeside(BuildTask* task, const Chains& chains, Ranks links,
                                     std::span<const cudaStream_t> streams) {
  const CommunicatorId id = chains.front()->id;
  const NcclCalls nccl = *nccl_;
  Device* const device = device_;
  const std::vector<DeviceContext> contexts = ContextsOf(links);
  const std::vector<Generation*> generations = GenerationsOf(links);
  REWIRE_ASSIGN_OR_RETURN(const std::vector<void*> scratch, ScratchOf(chains));
  ncclResult_t result = ncclSuccess;
  REWIRE_RETURN_IF_ERROR(task->InNccl(links, &result, [&] {
    return ForEachRank(nccl, device, contexts, [&](size_t i) {
      return nccl.AllReduce(scratch[i], scratch[i], 1, ncclFloat32, ncclSum, generations[i]->Real(),
                            streams[i]);
    });
  }));
  if (result != ncclSuccess && result != ncclInProgress) {
    return absl::InternalError(
        FirstOperation(id, absl::StrCat("ncclResult=", static_cast<int>(result))));
  }
  for (size_t i = 0; i < links.size(); ++i) {
    if (!links[i]->blocking) REWIRE_RETURN_IF_ERROR(Settle(task, generations[i]->Real()));
    REWIRE_RETURN_IF_ERROR(device_->Enter(contexts[i]));
    // The event is free until the generation is in use.
    if (!device_->Record(links[i]->end_of_previous, streams[i])) {
      return absl::InternalError(FirstOperation(id, "no event can be recorded after it"));
    }
  }
  return AwaitBeside(task, chains, links);
}

absl::Status EpochBuild::AwaitBeside(BuildTask* task, const Chains& chains, Ranks links) {
  const CommunicatorId id = chains.front()->id;
  const auto count = [&] {
    uint64_t all = 0;
    for (const auto& chain : chains) all += chain->comm->issued.load(std::memory_order_relaxed);
    return all;
  };
  uint64_t issued = count();
  // How long the program has stood still, as far as this thread could run. A thread that the host
  // holds back sees the program stand still for the same reason.
  Duration still{0};
  Time polled = Now();
  for (size_t i = 0; i < links.size();) {
    switch (device_->Query(links[i]->end_of_previous)) {
      case Device::EventState::kDone:
        ++i;
        continue;
      case Device::EventState::kFailed:
        return absl::InternalError(FirstOperation(id, "the device reported an error"));
      case Device::EventState::kPending:
        break;
    }
    const Time now = Now();
    still += std::min<Duration>(now - polled, kLongestPoll);
    polled = now;
    const uint64_t now_issued = count();
    if (std::exchange(issued, now_issued) != now_issued) still = Duration{0};
    // A joiner, or a member whose generations were aborted, has no operation that could be blocked.
    const bool may_block = issued != 0 && !IsLost(chains.front().get());
    if (const absl::Status stopped = task->Stopped(); !stopped.ok()) {
      // Another member was the first to give up. The member that mints the next build must know.
      if (may_block && still > stalled_ / 2) ++counters_->beside_refused;
      return stopped;
    }
    if (may_block && still > stalled_) {
      // The two operations may block each other on some device. An abort of the new generation,
      // which no member uses yet, lets the old one continue. The attempt is not repeated.
      ++counters_->beside_refused;
      return absl::AbortedError(FirstOperation(
          id, absl::StrCat("not complete while the program issued no operation for ",
                           stalled_.count(), " ms (later builds run it at an agreed operation)")));
    }
    std::this_thread::sleep_for(kPoll);
  }
  return absl::OkStatus();
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
