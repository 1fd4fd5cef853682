#include "shim/core/cut.h"

#include <sched.h>

#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/elastic/protocol/messages.h"

namespace rewire::shim {

ncclResult_t Launches::Await(Chain* chain, const Generation* generation, Time deadline) {
  for (;;) {
    {
      MutexLock lock(&chain->mutex);
      if (chain->lost || chain->closing) return ncclRemoteError;
    }
    ncclResult_t state = ncclInProgress;
    ncclResult_t asked = ncclSuccess;
    if (generation->callers.TryExclude()) {
      asked = nccl_->CommGetAsyncError(generation->Real(), &state);
      generation->callers.Admit();
    }
    if (asked != ncclSuccess) return ncclInternalError;
    if (state != ncclInProgress || Now() >= deadline) return state;
    sched_yield();
  }
}

namespace {

// cudaStreamPerThread: each thread that passes it means a stream of its own.
const cudaStream_t kStreamPerThread = reinterpret_cast<cudaStream_t>(uintptr_t{2});
constexpr char kRegistration[] = "the registration of the program's buffers and windows";

std::string NotOrdered(const Chain& chain, Epoch epoch) {
  return absl::StrCat("swap communicator ", Name(chain.id()), " to epoch ", epoch,
                      ": the CUDA driver refused an event that orders the operation after the last "
                      "operation on the previous generation");
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

ncclResult_t Cutter::AtCut(Chain* chain, const CallSite& site) {
  const InContext context(device_, chain->context);
  return PassCuts(chain, site);
}

ncclResult_t Cutter::PassCuts(Chain* chain, const CallSite& site) {
  Call call;
  for (;;) {
    const Verdict verdict = NextStep(chain, site, &call);
    switch (verdict.step) {
      case Step::kReturn:
        return verdict.result;
      case Step::kAsk:
        events_->Undecided(verdict.epoch);
        break;
      case Step::kSwapped:
        ++counters_->swaps;
        break;
      case Step::kSettle: {
        const ncclResult_t state = launches_.Await(chain, verdict.generation, Now() + settle_);
        verdict.generation->fixed.fetch_sub(1, std::memory_order_seq_cst);
        call.settled = true;
        // The communicator's next operation reports any other error.
        if (state != ncclInProgress) break;
        events_->GivenUp(NotLaunched(verdict.epoch));
        return ncclRemoteError;
      }
      case Step::kWarm: {
        const ncclResult_t result = Warm(chain, site, verdict);
        if (result == ncclSuccess) break;
        events_->GivenUp(absl::StrCat(
            "swap to epoch ", verdict.epoch,
            ": the first operation on the next generation failed: ", nccl_->Describe(result),
            " (REWIRE_BUILD_MS=", settle_.count(), ")"));
        return ncclRemoteError;
      }
      case Step::kGiveUp:
        events_->GivenUp(absl::StrCat(
            "swap to epoch ", verdict.epoch, ": no decision within twice REWIRE_DECISION_MS=",
            decision_.count(), " ms: this member aborts its generations"));
        return ncclRemoteError;
    }
  }
}

Cutter::Verdict Cutter::NextStep(Chain* chain, const CallSite& site, Call* call) {
  MutexLock lock(&chain->mutex);
  for (;;) {
    if (chain->closing) return Return(ncclInvalidUsage);
    if (chain->lost) {
      ++counters_->stale_prevented;
      return Return(ncclRemoteError);
    }
    if (chain->fresh && chain->current != nullptr && device_->Capturing(site.stream) &&
        services_->registers(chain->comm, chain->current->generation)) {
      return RefuseCapture(chain, chain->current->epoch, kRegistration);
    }
    if (chain->wait_first != nullptr) {
      if (!device_->MakeWait(site.stream, chain->wait_first)) {
        return Refuse(chain, ncclUnhandledCudaError, NotOrdered(*chain, chain->current->epoch));
      }
      chain->wait_first = nullptr;
      if (device_->Capturing(site.stream)) chain->current->captured = true;
    }
    if (std::exchange(chain->fresh, false) && chain->current != nullptr) {
      chain->current->begun = true;  // the program's thread goes on to make its windows
    }
    if (chain->not_entered || chain->awaits_build) {
      ++counters_->stale_prevented;
      return Return(ncclInvalidUsage);
    }
    const uint64_t index = chain->comm->issued.load(std::memory_order_relaxed);
    const Link* front = chain->pending.empty() ? nullptr : chain->pending.front().get();
    const bool due = front != nullptr && index >= front->NextIndex();
    // A proposal that would replace the pending swap is decided first.
    const bool first =
        due && (!chain->pledged ||
                elastic::OrderOf(*chain->pledged, {front->epoch, front->cut.warm,
                                                   front->cut.cut}) == elastic::CutOrder::kFollows);
    if (chain->pledged && index >= chain->pledged->warm && !first) {
      if (const auto verdict = AwaitDecision(chain, call)) return *verdict;
      continue;
    }
    if (!due) {
      // The pledge may also have been taken back between the caller's check and this point.
      chain->refused_why = nullptr;
      chain->Arm();
      return {};
    }
    if (!chain->blocking && !chain->current->end_recorded && !call->settled) {
      // The last operation may not be on its stream yet. The next generation's first operation, or
      // the event, must follow it.
      Verdict verdict = Act(Step::kSettle, front->epoch);
      verdict.generation = chain->current->generation;
      verdict.generation->fixed.fetch_add(1, std::memory_order_seq_cst);
      return verdict;
    }
    return front->warmed ? SwapAtCut(chain, site) : WarmAt(chain, site);
  }
}

std::optional<Cutter::Verdict> Cutter::AwaitDecision(Chain* chain, Call* call) {
  const Epoch epoch = chain->built->epoch;
  const Time begun = Now();
  if (call->deadline == Time{}) {
    call->deadline = begun + decision_;
    ++chain->host_waits;
    ++counters_->host_waits;
    ++counters_->stale_prevented;
  }
  chain->changed.WaitUntil(&chain->mutex, call->deadline);
  const bool undecided = chain->pledged && chain->built != nullptr && chain->built->epoch == epoch;
  if (!undecided) {
    // The wait for another proposal starts again.
    call->deadline = Time{};
    call->asked = false;
    return std::nullopt;
  }
  if (Now() < call->deadline) return std::nullopt;
  if (call->asked) return Act(Step::kGiveUp, epoch);
  call->asked = true;
  call->deadline = Now() + decision_;
  return Act(Step::kAsk, epoch);
}

Cutter::Verdict Cutter::WarmAt(Chain* chain, const CallSite& site) {
  Link* front = chain->pending.front().get();
  if (device_->Capturing(site.stream)) {
    // The pledge was given before the capture began. A capturing stream cannot run an operation
    // now, and the other members will not wait.
    return RefuseCapture(chain, front->epoch, "the first operation on the next generation");
  }
  front->begun = true;
  Verdict verdict = Act(Step::kWarm, front->epoch);
  verdict.generation = front->generation;
  verdict.generation->fixed.fetch_add(1, std::memory_order_seq_cst);
  verdict.warm_scratch = front->scratch;
  return verdict;
}

Cutter::Verdict Cutter::Refuse(Chain* chain, ncclResult_t result, const std::string& why) {
  const char* const kept = KeepText(why);
  // A program may repeat the operation without end.
  if (std::exchange(chain->refused_why, kept) != kept) REWIRE_ERROR("%s", kept);
  return Return(result);
}

Cutter::Verdict Cutter::RefuseCapture(Chain* chain, Epoch epoch, const char* forbidden) {
  return Refuse(chain, ncclInvalidUsage,
                absl::StrCat("swap communicator ", Name(chain->id()), " to epoch ", epoch,
                             ": the program's operation is in a CUDA graph capture, which forbids ",
                             forbidden,
                             " (all ranks must issue an operation on the communicator before they "
                             "capture one)"));
}

bool Cutter::Follow(Chain* chain, DeviceEvent end, cudaStream_t stream) {
  Link& current = *chain->current;
  if (current.end_recorded) return device_->MakeWait(stream, end);
  // No operation was issued since the swap was decided, or the last operation came in a group or in
  // a capture.
  const cudaStream_t last = chain->comm->last_stream.load(std::memory_order_relaxed);
  const bool used = chain->comm->issued.load(std::memory_order_relaxed) > 0;
  if (used && last != stream && !device_->Capturing(last)) {
    if (device_->Record(end, last)) {
      if (!device_->MakeWait(stream, end)) return false;
      current.end_recorded = true;
    } else if (!device_->Destroyed(last)) {
      return false;
    }
    // The program orders what follows an operation on a stream that it destroys.
  }
  if (!device_->Capturing(stream)) {
    current.end_recorded = device_->Record(end, stream);
    return current.end_recorded;
  }
  // Without an event the stream has the last operation, or the program has destroyed that one's
  // stream. Nothing tells when the operation has ended.
  if (used && !current.end_recorded) current.captured = true;
  return true;
}

Cutter::Verdict Cutter::SwapAtCut(Chain* chain, const CallSite& site) {
  std::unique_ptr<Link> next = std::move(chain->pending.front());
  const DeviceEvent end = next->end_of_previous;
  const bool capturing = device_->Capturing(site.stream);
  const bool forbidden = capturing && services_->registers(chain->comm, next->generation);
  if (forbidden || !Follow(chain, end, site.stream)) {
    const Epoch epoch = next->epoch;
    chain->pending.front() = std::move(next);
    if (forbidden) return RefuseCapture(chain, epoch, kRegistration);
    return Refuse(chain, ncclUnhandledCudaError, NotOrdered(*chain, epoch));
  }
  // The graph waits for an event of the next generation.
  next->captured = capturing;
  chain->refused_why = nullptr;
  // Before the swap leaves `pending`: a look at the chain that finds nothing pending is the last
  // look, so the report must be there already.
  events_->Passed();
  chain->pending.erase(chain->pending.begin());
  next->begun = true;
  std::unique_ptr<Link> old = std::move(chain->current);
  old->end = end;
  // A capture since the pledge: it pins too late to refuse the swap.
  old->captured = old->captured || IsCaptured(*chain->comm);
  chain->current = std::move(next);
  services_->publish(chain->comm, chain->current->generation);
  retirement_->Add(std::move(old));
  chain->Arm();
  return Act(Step::kSwapped, chain->current->epoch);
}

// Ranks that launch the same two operations in different orders deadlock (Launches). So NextStep
// has waited until the operations before this one are launched, and the program's next operation
// waits until the warm operation is launched.
ncclResult_t Cutter::Warm(Chain* chain, const CallSite& site, const Verdict& verdict) {
  const bool joins = JoinsGroup(*chain, site);
  ncclResult_t result = joins || site.group_depth == 0 ? IssueWarm(site, verdict)
                                                       : IssueWarmOutside(*chain, site, verdict);
  if (result == ncclInProgress) {
    result = joins ? ncclSuccess : launches_.Await(chain, verdict.generation, Now() + settle_);
  }
  verdict.generation->fixed.fetch_sub(1, std::memory_order_seq_cst);
  MutexLock lock(&chain->mutex);
  if (chain->lost || chain->closing) return ncclSuccess;  // NextStep says which
  if (result == ncclSuccess && !chain->pending.empty() && chain->pending.front()->begun) {
    chain->pending.front()->warmed = true;
    chain->Arm();
  }
  return result;
}

ncclResult_t Cutter::IssueWarm(const CallSite& site, const Verdict& verdict) {
  return nccl_->AllReduce(verdict.warm_scratch, verdict.warm_scratch, 1, ncclFloat32, ncclSum,
                          verdict.generation->Real(), site.stream);
}

// Inside a group NCCL orders the communicators by their hashes. Another member may issue the same
// operation outside a group, so the warm operation must be launched before the group on all
// members. A group belongs to the thread that began it.
ncclResult_t Cutter::IssueWarmOutside(const Chain& chain, const CallSite& site,
                                      const Verdict& verdict) {
  ncclResult_t result = ncclSystemError;
  try {
    std::thread([&] {
      const InContext context(device_, chain.context);
      result = IssueWarm(site, verdict);
    }).join();
  } catch (const std::system_error& error) {
    REWIRE_WARN("swap communicator %s: start a thread for the first operation: %s",
                Name(chain.id()).c_str(), error.what());
  }
  return result;
}

// A warm operation that joins the group is launched at the group's end, by the thread that launches
// the group's other operations. This comes before the state of any of them changes. A program that
// has seen one operation of the group settled therefore finds the warm operation launched.
bool Cutter::JoinsGroup(const Chain& chain, const CallSite& site) const {
  if (site.group_depth == 0) return false;
  if (site.stream == kStreamPerThread) return true;
  // Without the other ranks of this process, the first launch of one rank would not end.
  return !chain.blocking && chains_->RanksOf(chain.id()).size() > 1;
}

std::string Cutter::NotLaunched(Epoch epoch) const {
  return absl::StrCat("swap to epoch ", epoch, ": the operation before the cut was not launched ",
                      "within REWIRE_BUILD_MS=", settle_.count(),
                      " ms: a peer did not issue its operation");
}

void Cutter::BeforeCut(Chain* chain, const CallSite& site) {
  Generation* current = nullptr;
  Generation* next = nullptr;
  Epoch epoch = 0;
  {
    MutexLock lock(&chain->mutex);
    if (chain->pending.empty() || chain->current == nullptr) return;
    if (!chain->blocking) {
      epoch = chain->pending.front()->epoch;
      current = chain->current->generation;
      current->fixed.fetch_add(1, std::memory_order_seq_cst);
      if (chain->pending.front()->warmed) {
        next = chain->pending.front()->generation;
        next->fixed.fetch_add(1, std::memory_order_seq_cst);
      }
    }
  }
  if (current != nullptr) {
    // The operation may not be on its stream before the wait ends. The next operation may be the
    // first on the next generation, which a warm operation in a group may still occupy.
    const Time deadline = Now() + settle_;
    ncclResult_t state = launches_.Await(chain, current, deadline);
    current->fixed.fetch_sub(1, std::memory_order_seq_cst);
    if (next != nullptr) {
      if (state != ncclInProgress) state = launches_.Await(chain, next, deadline);
      next->fixed.fetch_sub(1, std::memory_order_seq_cst);
    }
    // The communicator's next operation reports any other error.
    if (state == ncclInProgress) {
      events_->GivenUp(NotLaunched(epoch));
      return;
    }
  }
  const InContext context(device_, chain->context);
  MutexLock lock(&chain->mutex);
  if (chain->pending.empty() || chain->current == nullptr) return;
  // An event that is recorded in a capture belongs to the graph.
  chain->current->end_recorded =
      !device_->Capturing(site.stream) &&
      device_->Record(chain->pending.front()->end_of_previous, site.stream);
}

}  // namespace rewire::shim
