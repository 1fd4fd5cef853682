#include "shim/core/cut.h"

#include <sched.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"

namespace rewire::shim {

namespace {

// A pledge that leaves the application's thread less room than this would make it wait.
constexpr uint64_t kRoom = 2;

void Forget(Chain* chain) REWIRE_REQUIRES(chain->mutex) {
  chain->stop = Stop::kNone;
  chain->comm->stop_at.store(kNoCut, std::memory_order_release);
  chain->changed.NotifyAll();
}

}  // namespace

Cutter::Verdict Cutter::Return(ncclResult_t result) {
  Verdict verdict;
  verdict.result = result;
  return verdict;
}

Cutter::Verdict Cutter::Act(Step step, Epoch epoch) {
  Verdict verdict;
  verdict.step = step;
  verdict.epoch = epoch;
  return verdict;
}

bool Cutter::Pledge(Chain* chain, Epoch epoch, const Cut& cut) {
  MutexLock lock(&chain->mutex);
  if (chain->closing || chain->lost || chain->next == nullptr || chain->next->epoch != epoch ||
      cut.warm > cut.cut || chain->comm->pins.load(std::memory_order_relaxed) != 0 ||
      (chain->stop != Stop::kNone && chain->stop != Stop::kUndecided)) {
    return false;
  }
  // The first operation after a boundary must still be caught.
  if (chain->wait_first != nullptr) {
    if (device_->Query(chain->wait_first) != Device::EventState::kDone) return false;
    chain->wait_first = nullptr;
  }
  chain->stop = Stop::kUndecided;
  chain->epoch = epoch;
  chain->cut = cut;
  chain->host_waits = 0;
  if (services_->pledge(chain->comm, cut.warm) + kRoom <= cut.warm) return true;
  Forget(chain);
  return false;
}

bool Cutter::Decide(Chain* chain, Epoch epoch, bool go) {
  MutexLock lock(&chain->mutex);
  if (chain->stop != Stop::kUndecided || chain->epoch != epoch) return false;
  if (!go) {
    Forget(chain);
    return true;
  }
  chain->stop = Stop::kWarm;
  if (chain->next != nullptr && chain->next->warmed) {
    // Nothing to do at the warm index.
    chain->stop = Stop::kCut;
    chain->comm->stop_at.store(chain->cut.cut, std::memory_order_release);
  }
  chain->changed.NotifyAll();
  return true;
}

ncclResult_t Cutter::AtCut(Chain* chain, const CallSite& site) {
  Time deadline{};
  bool asked = false;
  for (;;) {
    const Verdict verdict = NextStep(chain, site, &deadline, &asked);
    switch (verdict.step) {
      case Step::kReturn:
        return verdict.result;
      case Step::kAsk:
        events_->Undecided(verdict.epoch);
        break;
      case Step::kSwapped:
        counters_->swaps.fetch_add(1, std::memory_order_relaxed);
        events_->Passed(verdict.epoch, verdict.host_waits);
        return ncclSuccess;
      case Step::kWarm: {
        const ncclResult_t result = Warm(chain, site, verdict);
        if (result == ncclSuccess) break;
        events_->GivenUp(absl::StrCat("epoch ", verdict.epoch,
                                      " was decided, but the next generation did not take the "
                                      "first operation (ncclResult ",
                                      static_cast<int>(result), ")"));
        return ncclRemoteError;
      }
      case Step::kGiveUp:
        events_->GivenUp(absl::StrCat(
            "no decision about epoch ", verdict.epoch, " within twice REWIRE_DECISION_MS=",
            decision_.count(), " ms: this member does not guess and gives its generations up"));
        return ncclRemoteError;
    }
  }
}

Cutter::Verdict Cutter::NextStep(Chain* chain, const CallSite& site, Time* deadline, bool* asked) {
  MutexLock lock(&chain->mutex);
  for (;;) {
    if (chain->closing) return Return(ncclInvalidUsage);
    if (chain->lost) {
      counters_->stale_prevented.fetch_add(1, std::memory_order_relaxed);
      return Return(ncclRemoteError);
    }
    if (chain->wait_first != nullptr &&
        !device_->MakeWait(site.stream, std::exchange(chain->wait_first, nullptr))) {
      return Return(ncclUnhandledCudaError);
    }
    const uint64_t index = chain->comm->issued.load(std::memory_order_relaxed);
    switch (chain->stop) {
      case Stop::kNone:
        // The first operation after an update boundary, or the pledge was taken back between the
        // caller's check and here.
        Forget(chain);
        return {};
      case Stop::kNotEntered:
        counters_->stale_prevented.fetch_add(1, std::memory_order_relaxed);
        return Return(ncclInvalidUsage);
      case Stop::kUndecided: {
        if (index < chain->cut.warm) return {};
        if (*deadline == Time{}) {
          *deadline = Now() + decision_;
          ++chain->host_waits;
          counters_->host_waits.fetch_add(1, std::memory_order_relaxed);
          counters_->stale_prevented.fetch_add(1, std::memory_order_relaxed);
        }
        chain->changed.WaitUntil(&chain->mutex, *deadline);
        if (chain->stop != Stop::kUndecided || Now() < *deadline) continue;
        if (!*asked) {
          *asked = true;
          *deadline = Now() + decision_;
          return Act(Step::kAsk, chain->epoch);
        }
        return Act(Step::kGiveUp, chain->epoch);
      }
      case Stop::kWarm: {
        if (index < chain->cut.warm) return {};
        if (device_->Capturing(site.stream)) {
          // The pledge was given before the capture began. Nothing may be put on a capturing
          // stream that must run now, and the other members will not wait: refuse by name.
          REWIRE_ERROR(
              "communicator %016llx: the operation at the cut of epoch %llu is inside a "
              "CUDA graph capture, which cannot follow",
              static_cast<unsigned long long>(chain->id.high),
              static_cast<unsigned long long>(chain->epoch));
          return Return(ncclInvalidUsage);
        }
        chain->inside = true;
        Verdict verdict = Act(Step::kWarm, chain->epoch);
        verdict.warm_comm = chain->next->generation->Real();
        verdict.warm_scratch = chain->scratch;
        return verdict;
      }
      case Stop::kCut:
        if (index < chain->cut.cut) return {};
        return SwapAtCut(chain, site);
    }
  }
}

Cutter::Verdict Cutter::SwapAtCut(Chain* chain, const CallSite& site) {
  const DeviceEvent end = chain->next->end_of_previous;
  // Without a record behind it (the operation before the cut failed), what this stream has is the
  // best order there is.
  const bool ordered = chain->current->end_recorded ? device_->MakeWait(site.stream, end)
                                                    : device_->Record(end, site.stream);
  if (!ordered) return Return(ncclUnhandledCudaError);
  Verdict verdict = Act(Step::kSwapped, chain->epoch);
  verdict.host_waits = chain->host_waits;
  std::unique_ptr<Link> old = std::move(chain->current);
  old->end = end;
  old->end_recorded = true;
  chain->current = std::move(chain->next);
  services_->publish(chain->comm, chain->current->generation);
  events_->SwappedOut(std::move(old));
  Forget(chain);
  return verdict;
}

ncclResult_t Cutter::Warm(Chain* chain, const CallSite& site, const Verdict& verdict) {
  ncclResult_t result = nccl_->AllReduce(verdict.warm_scratch, verdict.warm_scratch, 1, ncclFloat32,
                                         ncclSum, verdict.warm_comm, site.stream);
  // Inside a group nothing is launched yet; a non-blocking one settles by the cut.
  if (result == ncclInProgress) result = ncclSuccess;
  MutexLock lock(&chain->mutex);
  chain->inside = false;
  chain->changed.NotifyAll();
  if (result == ncclSuccess && chain->stop == Stop::kWarm) {
    chain->stop = Stop::kCut;
    chain->comm->stop_at.store(chain->cut.cut, std::memory_order_release);
  }
  return result;
}

ncclResult_t Cutter::Settle(ncclComm_t comm) {
  const Time deadline = Now() + decision_;
  ncclResult_t state = ncclInProgress;
  do {
    if (nccl_->CommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    if (state != ncclInProgress) return state;
    sched_yield();
  } while (Now() < deadline);
  return state;
}

void Cutter::BeforeCut(Chain* chain, const CallSite& site) {
  ncclComm_t current = nullptr;
  ncclComm_t next = nullptr;
  {
    MutexLock lock(&chain->mutex);
    if (chain->next == nullptr || chain->current == nullptr || chain->stop < Stop::kUndecided) {
      return;
    }
    if (!chain->blocking) {
      chain->inside = true;
      current = chain->current->generation->Real();
      if (chain->stop == Stop::kCut) next = chain->next->generation->Real();
    }
  }
  if (current != nullptr) {
    // Until then the operation may not be on its stream yet. What is wrong with a communicator its
    // next operation says.
    static_cast<void>(Settle(current));
    if (next != nullptr) static_cast<void>(Settle(next));
  }
  MutexLock lock(&chain->mutex);
  if (current != nullptr) {
    chain->inside = false;
    chain->changed.NotifyAll();
  }
  if (chain->next == nullptr || chain->current == nullptr) return;
  chain->current->end_recorded = device_->Record(chain->next->end_of_previous, site.stream);
}

void Cutter::SwapNow(Chain* chain, Epoch epoch) {
  {
    MutexLock lock(&chain->mutex);
    if (chain->closing) return;
    chain->lost = false;
    chain->comm->issued.store(0, std::memory_order_relaxed);
    Forget(chain);
    // A joiner's is in use already.
    if (chain->current == nullptr || chain->current->epoch != epoch) GoToBuilt(chain, epoch);
  }
  counters_->swaps.fetch_add(1, std::memory_order_relaxed);
}

void Cutter::GoToBuilt(Chain* chain, Epoch epoch) {
  const bool stays = chain->next != nullptr && chain->next->epoch == epoch;
  Generation* generation = nullptr;
  if (stays) {
    generation = chain->next->generation;
    chain->ranks = chain->next->ranks;
    chain->rank = chain->next->rank;
  } else {
    generation = services_->new_generation(epoch, -1, -1);
    if (generation != nullptr) generation->state.store(GenerationState::kClosed);
  }
  Generation* before = services_->publish(chain->comm, generation);
  std::unique_ptr<Link> old = std::move(chain->current);
  if (stays) chain->current = std::move(chain->next);
  if (old == nullptr) {
    // What stood there since the loss.
    if (before != nullptr) services_->free_generation(before);
    return;
  }
  if (stays) {
    old->end = chain->current->end_of_previous;
    old->end_recorded =
        device_->Record(old->end, chain->comm->last_stream.load(std::memory_order_relaxed));
    if (old->end_recorded) {
      chain->wait_first = old->end;
      chain->comm->stop_at.store(0, std::memory_order_release);
    }
  }
  events_->SwappedOut(std::move(old));
}

}  // namespace rewire::shim
