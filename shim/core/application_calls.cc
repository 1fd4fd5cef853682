// The part of ShimCommunicators that the preloaded library calls, on the application's threads.

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "shim/core/communicators.h"

namespace rewire::shim {

namespace {

// The longest wait of a destroy until the builder, usually soon, has ended or left its thread.
constexpr seconds kRelease(10);

}  // namespace

int ShimCommunicators::OnCreated(VirtualCommunicator* comm, ncclResult_t* result) {
  auto chain = std::make_shared<Chain>(comm, device_->CurrentContext());
  const bool from_ids = comm->recipe.creation == Creation::kInitRank ||
                        comm->recipe.creation == Creation::kInitRankScalable;
  const bool awaits = from_ids && events() != nullptr && events()->ComesWithBuild(chain->id);
  Generation* first = comm->current.load(std::memory_order_acquire);
  {
    MutexLock lock(&chain->mutex);
    chain->ranks = static_cast<uint32_t>(std::max(first->ranks.load(), 0));
    chain->rank = static_cast<uint32_t>(std::max(first->rank.load(), 0));
    chain->awaits_build = awaits;
    if (!awaits) {
      chain->current = std::make_unique<Link>();
      chain->current->generation = first;
      chain->current->id = chain->id;
      chain->current->blocking = chain->blocking;
      chain->current->created_by_program = from_ids;
      chain->current->context = chain->context;
    }
  }
  elastic::CommunicatorCreated created = DescribeCreated(chain.get());
  const absl::StatusOr<uint64_t> free_bytes = device_->FreeBytes();
  {
    MutexLock lock(&mutex_);
    if (HasRank(chain->id)) {
      created.pinned = true;
      created.reason = "several ranks of the communicator are in this process";
    }
    chains_[comm] = chain;
    if (free_bytes.ok()) free_before_[comm] = *free_bytes;
  }
  builder_.Arrived();
  if (events() != nullptr) {
    events()->Created(created);
    events()->Moved();
  }
  // Either AbortCurrent has seen the communicator or lost_ is set: one ends the creation.
  if (from_ids && !awaits && lost_.load(std::memory_order_seq_cst)) WatchCreation(chain);
  if (!awaits) return 0;
  // An AbortCurrent before this point has not seen this communicator, but Stopped() is then true.
  std::vector<std::unique_ptr<Link>> none;
  if (events()->Stopped()) Lose(chain.get(), Keep("this process is not part of the job"), &none);
  *result = chain->blocking ? AwaitFirst(chain.get()) : ncclInProgress;
  return 1;
}

void ShimCommunicators::WatchCreation(const std::shared_ptr<Chain>& chain) {
  calls_.PostAt(Now() + options_.build, [this, chain] {
    {
      MutexLock lock(&chain->mutex);
      if (chain->closing || chain->lost || chain->current == nullptr ||
          chain->current->generation->device.load(std::memory_order_acquire) >= 0) {
        return;
      }
    }
    const std::string why =
        absl::StrCat("create communicator ", Name(chain->id),
                     ": timed out after REWIRE_BUILD_MS=", options_.build.count(),
                     " ms since a member was lost: the lost member may be one of its ranks");
    REWIRE_WARN("%s", why.c_str());
    std::vector<std::unique_ptr<Link>> links;
    Lose(chain.get(), Keep(why), &links);
    loss_.Abort(std::move(links));
  });
}

ncclResult_t ShimCommunicators::AwaitFirst(Chain* chain) {
  const Time deadline = Now() + options_.build;
  MutexLock lock(&chain->mutex);
  while (chain->awaits_build && !chain->closing) {
    if (!chain->changed.WaitUntil(&chain->mutex, deadline) && Now() >= deadline) {
      REWIRE_ERROR(
          "create communicator %s of a joining member: timed out after REWIRE_BUILD_MS=%lld ms",
          Name(chain->id).c_str(), static_cast<long long>(options_.build.count()));
      return ncclRemoteError;
    }
  }
  if (chain->lost) return ncclRemoteError;
  return chain->closing ? ncclInvalidUsage : ncclSuccess;
}

void ShimCommunicators::OnOpened(VirtualCommunicator* comm) {
  const absl::StatusOr<uint64_t> free_after = device_->FreeBytes();
  MutexLock lock(&mutex_);
  const auto it = free_before_.find(comm);
  if (it == free_before_.end()) return;
  if (free_after.ok()) {
    ledger_.Record(comm->id, MemoryLedger::Maker::kProgram, it->second, *free_after);
  }
  free_before_.erase(it);
}

void ShimCommunicators::OnClosing(VirtualCommunicator* comm, bool aborting) {
  std::shared_ptr<Chain> chain;
  bool several = false;  // other ranks of this process still have the communicator
  bool last = false;
  {
    MutexLock lock(&mutex_);
    const auto it = chains_.find(comm);
    if (it == chains_.end()) return;
    chain = std::move(it->second);
    chains_.erase(it);
    free_before_.erase(comm);
    several = HasRank(chain->id);
    last = chains_.empty();
  }
  // Reported before the current build is stopped: a change that meets a destroyed communicator is
  // prepared again, but a change whose build has failed ends.
  if (!several && events() != nullptr) events()->Destroyed(chain->id);
  std::vector<std::unique_ptr<Link>> dropped;
  void* scratch = nullptr;
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
    scratch = std::exchange(chain->scratch, nullptr);
    chain->Arm();
    const Time until = Now() + kRelease;
    while (chain->settling > 0 && chain->changed.WaitUntil(&chain->mutex, until)) {
    }
  }
  // A thread that was left inside NCCL may still pass the memory to a kernel.
  if (!builder_.Release(chain->id, Now() + kRelease)) scratch = nullptr;
  ledger_.Forget(chain->id);
  loss_.Abort(std::move(dropped));
  if (scratch != nullptr) {
    loss_.After([this, chain, scratch] {
      if (device_->Enter(chain->context).ok()) device_->Free(scratch);
    });
  }
  if (events() != nullptr) events()->Moved();
  if (last && events() != nullptr) events()->AwaitSent();
  REWIRE_DEBUG("a communicator was %s", aborting ? "aborted" : "destroyed");
}

const char* ShimCommunicators::OnLastError(VirtualCommunicator* comm) {
  for (const auto& chain : Chains()) {
    if (comm != nullptr && chain->comm != comm) continue;
    MutexLock lock(&chain->mutex);
    if (chain->lost) return chain->lost_why;
  }
  return nullptr;
}

std::string ShimCommunicators::LostBecause() {
  const char* why = OnLastError(nullptr);
  return why != nullptr ? why : "";
}

ncclResult_t ShimCommunicators::AtCut(VirtualCommunicator* comm, const CallSite& site) {
  const std::shared_ptr<Chain> chain = ChainOf(comm);
  return chain != nullptr ? cutter_.AtCut(chain.get(), site) : ncclSuccess;
}

void ShimCommunicators::BeforeCut(VirtualCommunicator* comm, const CallSite& site) {
  if (const std::shared_ptr<Chain> chain = ChainOf(comm)) cutter_.BeforeCut(chain.get(), site);
}

}  // namespace rewire::shim
