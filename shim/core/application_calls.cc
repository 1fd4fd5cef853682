// The part of ShimCommunicators that the preloaded library calls, on the application's threads, and
// the table of these calls.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "shim/core/shim_communicators.h"

namespace rewire::shim {

namespace {

// The longest wait of a destroy until the builder, usually soon, has ended or left its thread.
constexpr seconds kRelease(10);
// The longest wait of exit(). An abort takes milliseconds, but waits for the program's threads.
constexpr seconds kExit(5);

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
uint64_t FreeMemory(VirtualCommunicator* comm) noexcept { return target->FreeMemory(comm); }
void TookMemory(VirtualCommunicator* comm, uint64_t free_before) noexcept {
  target->OnTookMemory(comm, free_before);
}
const char* LastError(VirtualCommunicator* comm) noexcept { return target->OnLastError(comm); }
void Pinned(VirtualCommunicator* comm) noexcept { target->OnPinned(comm); }
ncclResult_t AwaitFirst(VirtualCommunicator* comm) noexcept { return target->AwaitFirst(comm); }

uint32_t RankOf(Chain* chain) {
  MutexLock lock(&chain->mutex);
  return chain->rank;
}

constexpr CoreTable kTable = {kCoreAbiVersion, Created,    Closing,   AtCut,  BeforeCut,
                              FreeMemory,      TookMemory, LastError, Pinned, AwaitFirst};

}  // namespace

int ShimCommunicators::OnCreated(VirtualCommunicator* comm, ncclResult_t* result) {
  Generation* first = comm->current.load(std::memory_order_acquire);
  // At the end of a group, the thread's current device may be another rank's.
  const int device = first->device.load(std::memory_order_acquire);
  auto chain = std::make_shared<Chain>(comm, device < 0 ? environment_.device->CurrentContext()
                                                        : environment_.device->ContextOf(device));
  const bool from_ids = comm->recipe.creation == Creation::kInitRank ||
                        comm->recipe.creation == Creation::kInitRankScalable;
  const bool awaits = from_ids && events() != nullptr && events()->ComesWithBuild(chain->id());
  const auto ranks = static_cast<uint32_t>(std::max(first->ranks.load(), 0));
  const bool several = comm->recipe.in_group || several_.load(std::memory_order_relaxed);
  if (from_ids && !awaits && loss_report_.Refuse(ranks, several)) {
    *result = ncclRemoteError;
    return 1;
  }
  {
    MutexLock lock(&chain->mutex);
    chain->ranks = ranks;
    chain->rank = static_cast<uint32_t>(std::max(first->rank.load(), 0));
    chain->awaits_build = awaits;
    if (!awaits) {
      chain->current = std::make_unique<Link>();
      chain->current->generation = first;
      chain->current->id = chain->current->first_id = chain->first_id;
      chain->current->ranks = chain->ranks;
      chain->current->rank = chain->rank;
      chain->current->blocking = chain->blocking;
      chain->current->created_by_program = from_ids;
      chain->current->context = chain->context;
    }
  }
  chains_.Add(chain);
  if (chains_.RanksOf(chain->id()).size() > 1) several_.store(true, std::memory_order_relaxed);
  PinMixedModes(chain->id());
  builder_.Arrived();
  if (events() != nullptr) {
    events()->Created(chain->DescribeCreated());
    events()->Moved();
  }
  // Either AbortCurrent has seen the communicator or the report is active: one ends the creation.
  if (from_ids && !awaits && loss_report_.Active()) WatchCreation(chain);
  if (!awaits) return 0;
  // An AbortCurrent before this point has not seen this communicator, but Stopped() is then true.
  std::vector<std::unique_ptr<Link>> none;
  if (events()->Stopped())
    publication_.Lose(chain.get(), "this process is not part of the job", &none);
  MutexLock lock(&chain->mutex);
  chain->Arm();  // an operation before the epoch is refused
  if (chain->lost) {
    *result = ncclRemoteError;
  } else {
    *result = chain->blocking ? ncclSuccess : ncclInProgress;
  }
  return 1;
}

void ShimCommunicators::WatchCreation(const std::shared_ptr<Chain>& chain) {
  calls_.PostAt(Now() + build_, [this, chain] {
    {
      MutexLock lock(&chain->mutex);
      if (chain->closing || chain->lost || chain->current == nullptr ||
          chain->current->generation->device.load(std::memory_order_acquire) >= 0) {
        return;
      }
    }
    const std::string why =
        absl::StrCat("create communicator ", Name(chain->id()),
                     ": timed out after REWIRE_BUILD_MS=", build_.count(),
                     " ms since a member was lost: the lost member may be one of its ranks");
    REWIRE_WARN("%s", why.c_str());
    std::vector<std::unique_ptr<Link>> links;
    publication_.Lose(chain.get(), why, &links);
    loss_.Abort(std::move(links));
  });
}

ncclResult_t ShimCommunicators::AwaitFirst(VirtualCommunicator* comm) {
  const std::shared_ptr<Chain> chain = chains_.Of(comm);
  if (chain == nullptr) return ncclSuccess;
  const Time deadline = Now() + build_;
  MutexLock lock(&chain->mutex);
  while (chain->awaits_build && !chain->closing) {
    if (!chain->changed.WaitUntil(&chain->mutex, deadline) && Now() >= deadline) {
      REWIRE_ERROR(
          "communicator %s of a joining member was not built within REWIRE_BUILD_MS=%lld ms (make "
          "all communicators before a call that needs one of them)",
          Name(chain->id()).c_str(), static_cast<long long>(build_.count()));
      return ncclRemoteError;
    }
  }
  if (chain->lost) return ncclRemoteError;
  return chain->closing ? ncclInvalidUsage : ncclSuccess;
}

namespace {

// The last build or destruction before FreeMemory() on this thread.
thread_local uint64_t last_turn = 0;

}  // namespace

uint64_t ShimCommunicators::FreeMemory(VirtualCommunicator* comm) {
  const std::shared_ptr<Chain> chain = chains_.Of(comm);
  // A build or a destruction changes the free memory too.
  last_turn = ledger_.turns()->begun.load();
  if (chain == nullptr || !ledger_.turns()->None(last_turn)) return 0;
  const InContext context(environment_.device, chain->context);
  return environment_.device->FreeBytes().value_or(0);
}

void ShimCommunicators::OnTookMemory(VirtualCommunicator* comm, uint64_t free_before) {
  const std::shared_ptr<Chain> chain = chains_.Of(comm);
  if (chain == nullptr) return;
  const InContext context(environment_.device, chain->context);
  const absl::StatusOr<uint64_t> free_after = environment_.device->FreeBytes();
  if (!free_after.ok() || !ledger_.turns()->None(last_turn)) return;
  // OnClosing() forgets the communicator afterwards.
  MutexLock lock(&chain->mutex);
  if (chain->closing) return;
  ledger_.AddTaken({chain->first_id, chain->context}, free_before, *free_after);
}

void ShimCommunicators::OnClosing(VirtualCommunicator* comm, bool aborting) {
  const Chains::Removed removed = chains_.Remove(comm);
  const std::shared_ptr<Chain>& chain = removed.chain;
  if (chain == nullptr) return;
  // Reported before the current build is stopped: a change that meets a destroyed communicator is
  // prepared again, but a change whose build has failed ends.
  if (events() != nullptr) events()->Destroyed(chain->id(), RankOf(chain.get()));
  if (removed.several) ReportPins(chain->id());
  std::vector<std::unique_ptr<Link>> dropped;
  {
    MutexLock lock(&chain->mutex);
    chain->closing = true;
    chain->pledged.reset();
    chain->TakePending(&dropped);
    if (chain->built != nullptr) dropped.push_back(std::move(chain->built));
    chain->not_entered = false;
    chain->wait_first = nullptr;
    if (chain->current != nullptr) {
      // The caller ends the real communicator. The previous link may read this link's event.
      chain->current->generation = nullptr;
      retirement_.Add(std::move(chain->current));
    }
    chain->Arm();
  }
  builder_.Release(chain->id(), Now() + kRelease);
  if (!removed.several) retirement_.ReleaseCaptured(chain->first_id);
  ledger_.Forget({chain->first_id, chain->context});
  loss_.Abort(std::move(dropped));
  if (events() != nullptr) events()->Moved();
  if (removed.last && events() != nullptr) events()->AwaitSent();
  REWIRE_DEBUG("a communicator was %s", aborting ? "aborted" : "destroyed");
}

const char* ShimCommunicators::OnLastError(VirtualCommunicator* comm) {
  for (const auto& chain : chains_.All()) {
    if (comm != nullptr && chain->comm != comm) continue;
    MutexLock lock(&chain->mutex);
    if (chain->lost) return chain->lost_why;
    if (chain->refused_why != nullptr) return chain->refused_why;
  }
  return comm == nullptr ? loss_report_.Refused() : nullptr;
}

std::string ShimCommunicators::LostBecause() {
  for (const auto& chain : chains_.All()) {
    MutexLock lock(&chain->mutex);
    if (chain->lost) return chain->lost_why;
  }
  return "";
}

void ShimCommunicators::OnPinned(VirtualCommunicator* comm) {
  if (const std::shared_ptr<Chain> chain = chains_.Of(comm)) ReportPins(chain->id());
}

void ShimCommunicators::ReportPins(const CommunicatorId& id) {
  if (events() == nullptr) return;
  uint32_t pins = 0;
  for (const auto& chain : chains_.RanksOf(id)) {
    pins |= chain->comm->pins.load(std::memory_order_relaxed);
  }
  events()->Pinned(id, DescribePins(pins));
}

void ShimCommunicators::PinMixedModes(const CommunicatorId& id) {
  const std::vector<std::shared_ptr<Chain>> ranks = chains_.RanksOf(id);
  const bool mixed = std::any_of(ranks.begin(), ranks.end(), [&](const auto& chain) {
    return chain->blocking != ranks.front()->blocking;
  });
  if (!mixed) return;
  for (const auto& chain : ranks) AddPin(chain->comm, Pin::kMixedModes);
}

void ShimCommunicators::ReleaseGraphs() {
  // Before the report, after which a build may begin: it waits for what is due.
  retirement_.ReleaseCaptured(std::nullopt);
  for (const auto& chain : chains_.All()) {
    {
      MutexLock lock(&chain->mutex);
      if (chain->current != nullptr) chain->current->captured = false;
    }
    if (!RemovePin(chain->comm, Pin::kGraph)) continue;
    chain->comm->watch_capture.store(true, std::memory_order_relaxed);
    ReportPins(chain->id());
  }
}

ncclResult_t ShimCommunicators::AtCut(VirtualCommunicator* comm, const CallSite& site) {
  const std::shared_ptr<Chain> chain = chains_.Of(comm);
  return chain != nullptr ? cutter_.AtCut(chain.get(), site) : ncclSuccess;
}

void ShimCommunicators::BeforeCut(VirtualCommunicator* comm, const CallSite& site) {
  if (const std::shared_ptr<Chain> chain = chains_.Of(comm)) cutter_.BeforeCut(chain.get(), site);
}

void ShimCommunicators::OnExit() {
  retirement_.End();
  builder_.End();
  const int inside = environment_.exit_gate->Close(Now() + kExit);
  if (inside == 0) return;
  REWIRE_WARN("exit: %d threads of Rewire are still inside NCCL after %lld s", inside,
              static_cast<long long>(kExit.count()));
}

const CoreTable* TableOf(ShimCommunicators* communicators) {
  target = communicators;
  return &kTable;
}

}  // namespace rewire::shim
