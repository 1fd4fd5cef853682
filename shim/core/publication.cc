#include "shim/core/publication.h"

#include <utility>

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
    chain->comm->issued.store(0, std::memory_order_relaxed);
    // The boundary's generation replaces every pending generation.
    std::vector<std::unique_ptr<Link>> dropped;
    chain->TakePending(&dropped);
    for (std::unique_ptr<Link>& link : dropped) retirement_->Add(std::move(link));
    // A joiner's generation is current already.
    if (chain->current == nullptr || chain->current->epoch != epoch) GoToBuilt(chain, epoch);
    chain->fresh = true;
    chain->Arm();
  }
  ++counters_->swaps;
}

void Publication::GoToBuilt(Chain* chain, Epoch epoch) {
  const bool stays = chain->built != nullptr && chain->built->epoch == epoch;
  Generation* generation = nullptr;
  if (stays) {
    generation = chain->built->generation;
    chain->ranks = chain->built->ranks;
    chain->rank = chain->built->rank;
  } else {
    generation = services_->new_generation(epoch, -1, -1);
    if (generation != nullptr) generation->state.store(GenerationState::kClosed);
  }
  Generation* before = services_->publish(chain->comm, generation);
  std::unique_ptr<Link> old = std::move(chain->current);
  if (stays) chain->current = std::move(chain->built);
  if (old == nullptr) {
    // Free the marker that was current since the loss.
    if (before != nullptr) services_->free_generation(before);
    return;
  }
  old->end_recorded = false;
  old->captured = old->captured || IsCaptured(*chain->comm);
  if (stays) {
    old->end = chain->current->end_of_previous;
    old->end_recorded =
        device_->Record(old->end, chain->comm->last_stream.load(std::memory_order_relaxed));
    if (old->end_recorded) chain->wait_first = old->end;
  }
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
