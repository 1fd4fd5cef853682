#include "shim/core/publication.h"

#include <utility>

#include "shim/core/warm_up.h"

namespace rewire::shim {

bool Publication::Install(Chain* chain, std::unique_ptr<Link>* link,
                          std::vector<std::unique_ptr<Link>>* replaced) {
  MutexLock lock(&chain->mutex);
  if (chain->closing || chain->comm->pins.load(std::memory_order_relaxed) != 0) return false;
  if (chain->awaits_build) {
    // This is a joiner's first generation. The handle is complete; operations wait for the epoch.
    chain->awaits_build = false;
    chain->not_entered = true;
    chain->ranks = (*link)->ranks;
    chain->rank = (*link)->rank;
    chain->current = std::move(*link);
    Generation* before = services_->publish(chain->comm, chain->current->generation);
    if (before != nullptr) services_->free_generation(before);
    chain->Arm();
  } else {
    if (chain->built != nullptr) replaced->push_back(std::move(chain->built));
    chain->built = std::move(*link);
  }
  return true;
}

void Publication::Abandon(Chain* chain, Epoch epoch, std::vector<std::unique_ptr<Link>>* dropped) {
  MutexLock lock(&chain->mutex);
  // The generation of a decided swap is not here: it waits in `pending`.
  if (chain->built != nullptr && chain->built->epoch == epoch) {
    dropped->push_back(std::move(chain->built));
  }
  if (chain->not_entered && chain->current->epoch == epoch) {
    // A joiner continues to wait for its first generation.
    Generation* empty =
        services_->new_generation(0, static_cast<int>(chain->ranks), static_cast<int>(chain->rank));
    services_->publish(chain->comm, empty);
    chain->awaits_build = true;
    chain->comm->awaits_first.store(true, std::memory_order_release);
    dropped->push_back(std::move(chain->current));
  }
}

void Publication::SwapNow(Chain* chain, Epoch epoch) {
  {
    MutexLock lock(&chain->mutex);
    if (chain->closing) return;
    chain->lost = false;
    chain->not_entered = false;
    chain->pledged.reset();
    // The boundary's generation replaces every pending generation.
    std::vector<std::unique_ptr<Link>> dropped;
    chain->TakePending(&dropped);
    for (std::unique_ptr<Link>& link : dropped) retirement_->Add(std::move(link));
    // A joiner's generation is current already.
    if (chain->current == nullptr || chain->current->epoch != epoch) GoToBuilt(chain, epoch);
    if (chain->current != nullptr) chain->TakeIdentity();
    chain->comm->issued.store(0, std::memory_order_relaxed);
    chain->fresh = true;
    chain->Arm();
  }
  ++counters_->swaps;
}

bool Publication::IsDue(Chain* chain, Epoch epoch) {
  MutexLock lock(&chain->mutex);
  constexpr auto kSuspended = static_cast<uint32_t>(Pin::kSuspended);
  return !chain->closing && !chain->lost && !chain->pending.empty() &&
         chain->pending.front()->epoch <= epoch &&
         (chain->comm->pins.load(std::memory_order_relaxed) & kSuspended) == 0;
}

void Publication::SwapPending(Chain* chain, Epoch epoch) {
  {
    MutexLock lock(&chain->mutex);
    if (chain->closing || chain->lost) return;
    std::unique_ptr<Link> next;
    while (!chain->pending.empty() && chain->pending.front()->epoch <= epoch) {
      if (next != nullptr) retirement_->Add(std::move(next));
      next = std::move(chain->pending.front());
      chain->pending.erase(chain->pending.begin());
    }
    if (next == nullptr) return;
    // The count goes on at the cut, so that a later cut follows this one. All ranks have issued the
    // same number of operations.
    const uint64_t cut = next->cut.cut;
    if (chain->comm->issued.load(std::memory_order_relaxed) < cut) {
      chain->comm->issued.store(cut, std::memory_order_relaxed);
    }
    next->begun = true;
    GoTo(chain, std::move(next));
    chain->fresh = true;
    chain->Arm();
  }
  ++counters_->swaps;
}

void Publication::GoToBuilt(Chain* chain, Epoch epoch) {
  if (chain->built != nullptr && chain->built->epoch == epoch) {
    chain->ranks = chain->built->ranks;
    chain->rank = chain->built->rank;
    return GoTo(chain, std::move(chain->built));
  }
  Generation* closed = services_->new_generation(epoch, -1, -1);
  if (closed != nullptr) closed->state.store(GenerationState::kClosed);
  Generation* before = services_->publish(chain->comm, closed);
  std::unique_ptr<Link> old = std::move(chain->current);
  if (old == nullptr) {
    if (before != nullptr) services_->free_generation(before);
    return;
  }
  old->end_recorded = false;
  old->captured = old->captured || IsCaptured(*chain->comm);
  retirement_->Add(std::move(old));
}

void Publication::GoTo(Chain* chain, std::unique_ptr<Link> next) {
  Generation* before = services_->publish(chain->comm, next->generation);
  std::unique_ptr<Link> old = std::exchange(chain->current, std::move(next));
  if (old == nullptr) {
    // Free the marker that was current since the loss.
    if (before != nullptr) services_->free_generation(before);
    return;
  }
  const VirtualCommunicator& comm = *chain->comm;
  const cudaStream_t last = comm.last_stream.load(std::memory_order_relaxed);
  const bool used = comm.issued.load(std::memory_order_relaxed) > 0 || !IsUnused(comm);
  const bool capturing = used && device_->Capturing(last);
  old->captured = old->captured || IsCaptured(comm) || capturing;
  old->end = chain->current->end_of_previous;
  old->end_recorded = used && !capturing && device_->Record(old->end, last);
  chain->wait_first = old->end_recorded ? old->end : nullptr;
  retirement_->Add(std::move(old));
}

void Publication::Lose(Chain* chain, const std::string& reason,
                       std::vector<std::unique_ptr<Link>>* links) {
  const char* const kept = KeepText(reason);
  MutexLock lock(&chain->mutex);
  if (chain->closing) return;
  chain->TakePending(links);
  if (chain->built != nullptr) links->push_back(std::move(chain->built));
  chain->pledged.reset();
  if (chain->lost || (chain->current == nullptr && !chain->awaits_build)) return;
  Generation* marker =
      services_->new_generation(chain->awaits_build ? 0 : chain->current->epoch,
                                static_cast<int>(chain->ranks), static_cast<int>(chain->rank));
  if (marker != nullptr) marker->state.store(GenerationState::kAborted);
  if (chain->awaits_build) {
    Generation* empty = services_->publish(chain->comm, marker);
    if (empty != nullptr) services_->free_generation(empty);
    chain->awaits_build = false;
  } else {
    if (marker != nullptr) marker->device.store(chain->current->generation->device.load());
    chain->current->generation->state.store(GenerationState::kAborted);
    services_->publish(chain->comm, marker);
    links->push_back(std::move(chain->current));
  }
  chain->lost = true;
  chain->lost_why = kept;
  chain->wait_first = nullptr;
  chain->not_entered = false;
  chain->Arm();
}

}  // namespace rewire::shim
