#include "shim/core/epoch_build.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "reconfig/base/counters.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/world/identity.h"
#include "shim/core/ranks_here.h"
#include "shim/core/warm_up.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(1);

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

// Returns the number of open descriptors; nullopt: there is no descriptor left to count them.
std::optional<uint64_t> OpenDescriptors() {
  std::error_code error;
  uint64_t open = 0;
  std::filesystem::directory_iterator each("/proc/self/fd", error);
  for (; !error && each != std::filesystem::directory_iterator(); each.increment(error)) ++open;
  if (error == std::errc::too_many_files_open ||
      error == std::errc::too_many_files_open_in_system) {
    return std::nullopt;
  }
  return open;
}

// NCCL keeps some sockets of each initialisation that was given up, and without descriptors the
// program's own calls would fail too.
absl::Status CheckDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return absl::OkStatus();
  const uint64_t most = limit.rlim_cur / 4 * 3;
  const std::optional<uint64_t> open = OpenDescriptors();
  if (open && *open <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("build generations: descriptors: open=", open.value_or(limit.rlim_cur),
                   ": must be at most ", most,
                   ", three quarters of the limit (ulimit -n), after "
                   "builds that were given up, of which NCCL keeps sockets"));
}

}  // namespace

absl::Status EpochBuild::Run(BuildTask* task, LowPriority* priority,
                             std::vector<std::shared_ptr<Chain>>* chains) {
  uint64_t taken = 0;
  for (size_t i = 0; i < task->builds.size(); ++i) {
    const elastic::CommunicatorBuild& build = task->builds[i];
    REWIRE_ASSIGN_OR_RETURN(const Chains ranks, Await(task, build));
    // After a loss the program waits for this build and has no kernel on the device.
    if (i == 0 && !IsLost(ranks.front().get())) {
      if (counters_->failed_builds.load() > 0) REWIRE_RETURN_IF_ERROR(CheckDescriptors());
      REWIRE_RETURN_IF_ERROR(AwaitQuiet(task));
    }
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
  const Duration half = (task->deadline - begun) / 2;
  while (Now() < begun + half) {
    REWIRE_RETURN_IF_ERROR(task->Stopped());
    const bool quiet = site_->Quiet();
    if ((quiet || Now() >= begun + half / 2) && site_->Hold()) return absl::OkStatus();
    task->Wait(std::min(begun + half, Now() + kPoll));
  }
  return absl::AbortedError(
      absl::StrCat("generations of earlier builds were still being destroyed after ",
                   std::chrono::duration_cast<milliseconds>(Now() - begun).count(),
                   " ms (half of REWIRE_BUILD_MS)"));
}

absl::StatusOr<uint64_t> EpochBuild::CheckMemory(
    std::span<const elastic::CommunicatorBuild> builds) {
  std::map<DeviceContext, std::vector<OnDevice>> devices;
  for (const elastic::CommunicatorBuild& build : builds) {
    bool may_come = false;
    for (const std::shared_ptr<Chain>& chain : site_->Find(build.communicator, &may_come)) {
      devices[chain->context].emplace_back(chain->first_id, chain->context);
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

absl::StatusOr<Link*> EpochBuild::NewLink(BuildTask* task, Chain* chain,
                                          const elastic::CommunicatorBuild& build, uint32_t rank) {
  auto link = std::make_unique<Link>();
  link->id = build.grouped ? IdentityOfUniqueId(build.unique_id.data()) : chain->id();
  link->first_id = chain->first_id;
  link->epoch = task->epoch;
  link->ranks = build.ranks;
  link->rank = rank;
  link->blocking = chain->blocking;
  link->context = chain->context;
  REWIRE_RETURN_IF_ERROR(device_->Enter(chain->context));
  const size_t bytes = BesideRun::BytesFor(build.ranks);
  const absl::StatusOr<void*> scratch = device_->Allocate(bytes);
  if (!scratch.ok()) {
    return absl::ResourceExhaustedError(absl::StrCat("build of communicator ", Name(chain->id()),
                                                     ": no device memory: bytes=", bytes));
  }
  link->scratch = *scratch;
  const absl::StatusOr<DeviceEvent> event = device_->MakeEvent();
  if (!event.ok()) {
    FreeHandles(device_, *link);
    return event.status();
  }
  link->end_of_previous = *event;
  link->generation =
      services_->new_generation(task->epoch, static_cast<int>(build.ranks), static_cast<int>(rank));
  if (link->generation == nullptr) {
    FreeHandles(device_, *link);
    return absl::ResourceExhaustedError(absl::StrCat("build of communicator ", Name(chain->id()),
                                                     ": no host memory for a generation"));
  }
  MutexLock lock(&chain->mutex);
  if (chain->current != nullptr) {
    link->generation->device.store(chain->current->generation->device.load());
  }
  return task->Add(std::move(link));
}

absl::Status EpochBuild::BuildOne(BuildTask* task, const Chains& chains,
                                  const elastic::CommunicatorBuild& build, LowPriority* priority,
                                  uint64_t* taken) {
  if (build.unique_id.size() < NCCL_UNIQUE_ID_BYTES) {
    return absl::InvalidArgumentError(absl::StrCat("build of communicator ",
                                                   Name(build.communicator),
                                                   ": unique id: bytes=", build.unique_id.size(),
                                                   ": must be at least ", NCCL_UNIQUE_ID_BYTES));
  }
  const MemoryTurn turn(ledger_->turns());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<uint64_t> free_before, FreeBytes(chains));
  std::vector<Link*> links;
  for (size_t i = 0; i < chains.size(); ++i) {
    REWIRE_ASSIGN_OR_RETURN(Link* const link, NewLink(task, chains[i].get(), build, build.held[i]));
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
    ledger_->RecordBuilt({chains[i]->first_id, chains[i]->context}, free_before[i], free_after[i]);
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
  std::string_view hints = std::string_view(build.unique_id).substr(NCCL_UNIQUE_ID_BYTES);
  const bool beside = hints.substr(0, kBeside.size()) == kBeside;
  const bool unused = hints == kUnused;
  if (beside || unused) hints.remove_prefix(kBeside.size());
  REWIRE_ASSIGN_OR_RETURN(const std::vector<UsageClass> usage, DecodeUsage(hints));
  ncclUniqueId id;
  std::memcpy(id.internal, build.unique_id.data(), sizeof id.internal);
  const bool blocking = links.front()->blocking;
  const auto failed = [&](const char* what, ncclResult_t r) {
    return absl::InternalError(absl::StrCat(what, " of communicator ", Name(build.communicator),
                                            " as rank ", absl::StrJoin(build.held, ", "), " of ",
                                            build.ranks, ": ", nccl_->Describe(r)));
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
    if (!blocking) REWIRE_RETURN_IF_ERROR(Settle(*nccl_, task, generations[i]->Real()));
    REWIRE_RETURN_IF_ERROR(device_->Enter(contexts[i]));
    const User user(chains[i]->comm);
    REWIRE_RETURN_IF_ERROR(task->InNccl(links.subspan(i, 1), &result, [&] {
      return services->replay(chains[i]->comm, generations[i]);
    }));
    if (result != ncclSuccess) return failed("replay of registrations", result);
  }
  const std::vector<void*> scratch = ScratchOf(links);
  // On a non-blocking communicator the simulation would really launch.
  if (blocking) {
    std::vector<ncclComm_t> comms;
    for (const Generation* generation : generations) comms.push_back(generation->Real());
    REWIRE_RETURN_IF_ERROR(
        task->InNccl(links, &result, [&] { return Simulate(nccl, usage, comms, scratch); }));
    if (result != ncclSuccess) return failed("warm-up", result);
    counters_->warmed_classes += usage.size();
  }
  for (Link* link : links) link->warmed = unused;
  return beside ? beside_.Run(task, chains, links) : absl::OkStatus();
}

}  // namespace rewire::shim
