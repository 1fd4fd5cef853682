#include "shim/core/loss.h"

#include <pthread.h>

#include <algorithm>
#include <span>
#include <thread>
#include <utility>

#include "reconfig/base/log.h"

namespace rewire::shim {

namespace {

// No call on a non-blocking communicator waits for a peer, so its thread leaves within
// microseconds. The limit excludes a thread that keeps a group open for longer.
constexpr milliseconds kSettle(20);
// The abort flags bring a thread out of NCCL within milliseconds. The limit excludes a thread that
// a device holds for longer.
constexpr milliseconds kLeave(10000);
constexpr milliseconds kPollInside(2);

struct RealCommunicator {
  ncclComm_t comm = nullptr;
  bool blocking = true;
};

// At exit nothing is freed any more. The memory stays reachable, so that it is no leak.
void Keep(std::unique_ptr<Link> link) {
  static auto* const mutex = new Mutex;
  static auto* const kept = new std::vector<std::unique_ptr<Link>>;
  MutexLock lock(mutex);
  kept->push_back(std::move(link));
}

// Returns whether the program's own blocking creation has not returned, so that NCCL would free
// during the call. The preloaded library sets `device` after a creation has succeeded.
bool BeingCreated(const Link& link) {
  return link.created_by_program && link.blocking && link.generation != nullptr &&
         link.generation->device.load(std::memory_order_acquire) < 0;
}

// Aborts all communicators in one group. Separate aborts deadlock, because freeing one communicator
// may wait for the kernels of another. ncclCommAbort sets the abort flags at once, so that calls
// and kernels inside return. The end of the group frees. `settle` runs before the abort of the
// non-blocking communicators and waits until no thread is inside those: ncclCommAbort frees the
// memory that ncclCommGetAsyncError reads. `leave` runs before the end of the group and waits until
// no thread is inside any of the communicators.
void AbortAll(const NcclCalls& nccl, std::span<const RealCommunicator> reals,
              const std::function<void()>& settle, const std::function<void()>& leave) {
  if (reals.empty() || nccl.GroupStart() != ncclSuccess) return;
  for (const bool blocking : {true, false}) {
    if (!blocking) settle();
    for (const RealCommunicator& real : reals) {
      if (real.blocking == blocking) static_cast<void>(nccl.CommAbort(real.comm));
    }
  }
  leave();
  static_cast<void>(nccl.GroupEnd());
}

// Opens a group and aborts in the group. Returns false if no thread is inside, or NCCL refused.
bool AbortInOpenGroup(const NcclCalls& nccl, const ShimServices* services, Generation* generation) {
  // NCCL stores the handle early in the call.
  while (generation->Real() == nullptr) {
    if (services->quiesce(generation, 0)) return false;
    std::this_thread::sleep_for(kPollInside);
  }
  if (services->quiesce(generation, 0) || nccl.GroupStart() != ncclSuccess) return false;
  // A call that fails leaves the communicator to its caller, so the handle is valid here in any
  // case. But the thread inside may have taken the handle back.
  if (const ncclComm_t real = generation->Real()) {
    static_cast<void>(nccl.CommAbort(real));
    return true;
  }
  static_cast<void>(nccl.GroupEnd());
  return false;
}

// Ends the real communicator of a link, and frees both after every thread has left the generation
// (Generation::fixed, or a slot).
void InterruptAndFree(const NcclCalls& nccl, const ShimServices* services, Device* device,
                      const ExitGate& gate, std::unique_ptr<Link> owned) {
  const Link& link = *owned;
  pthread_setname_np(pthread_self(), "rw-interrupt");
  if (const absl::Status entered = device->Enter(link.context); !entered.ok()) {
    REWIRE_WARN("interrupt the initialisation of a communicator: no device context: %s",
                entered.ToString().c_str());
  }
  Generation* generation = link.generation;
  const bool grouped =
      nccl.abort_frees_at_group_end && AbortInOpenGroup(nccl, services, generation);
  while (!services->quiesce(generation, 0)) std::this_thread::sleep_for(kPollInside);
  if (gate.Closing()) return Keep(std::move(owned));
  if (grouped) {
    static_cast<void>(nccl.GroupEnd());
  } else if (const ncclComm_t real = generation->Real()) {
    static_cast<void>(nccl.CommAbort(real));
  }
  services->free_generation(generation);
  if (device->Enter(link.context).ok()) FreeHandles(device, link);
}

}  // namespace

void Loss::Abort(std::vector<std::unique_ptr<Link>> links) {
  if (links.empty()) return;
  auto shared = std::make_shared<std::vector<std::unique_ptr<Link>>>(std::move(links));
  queue_.Post([this, shared, counted = CountAbort()] {
    const ExitGate::Inside inside(exit_gate_.get());
    if (inside.ok()) return AbortAndFree(std::move(*shared));
    for (std::unique_ptr<Link>& link : *shared) Keep(std::move(link));
  });
}

std::shared_ptr<void> Loss::CountAbort() {
  {
    MutexLock lock(&aborts_->mutex);
    if (aborts_->running++ == 0) aborts_->since = Now();
  }
  return std::shared_ptr<void>(this, [aborts = aborts_](void*) {
    MutexLock lock(&aborts->mutex);
    --aborts->running;
  });
}

bool Loss::AbortingFor(Duration endless) const {
  MutexLock lock(&aborts_->mutex);
  return aborts_->running > 0 && Now() - aborts_->since < endless;
}

void Loss::AbortUnused(std::vector<std::unique_ptr<Link>> links) {
  // NCCL's own thread may be inside a non-blocking generation, and the abort ends it.
  for (std::unique_ptr<Link>& link : links) {
    if (link->blocking && exit_gate_->Closing()) Keep(std::move(link));
  }
  std::erase(links, nullptr);
  const std::shared_ptr<void> counted = CountAbort();
  AbortAndFree(std::move(links));
}

void Loss::Interrupt(std::unique_ptr<Link> link) {
  ++counters_->aborted;
  // The thread owns all that it uses: it may outlive this object.
  const std::shared_ptr<void> counted = nccl_->abort_frees_at_group_end ? CountAbort() : nullptr;
  std::thread([nccl = *nccl_, services = services_, device = device_, gate = exit_gate_, counted,
               link = std::move(link)]() mutable {
    const ExitGate::Inside inside(gate.get(), ExitGate::Purpose::kInterruption);
    if (!inside.ok()) return Keep(std::move(link));
    InterruptAndFree(nccl, services, device, *gate, std::move(link));
  }).detach();
}

bool Loss::WaitUntilLeft(const std::vector<std::unique_ptr<Link>>& links, bool blocking_too,
                         milliseconds within) {
  const Time until = Now() + within;
  bool left = true;
  for (const auto& link : links) {
    if (link->generation == nullptr || (link->blocking && !blocking_too)) continue;
    const auto rest = std::chrono::duration_cast<milliseconds>(until - Now()).count();
    left = services_->quiesce(link->generation, std::max<int64_t>(rest, 0)) && left;
  }
  return left;
}

void Loss::AbortAndFree(std::vector<std::unique_ptr<Link>> links) {
  for (std::unique_ptr<Link>& link : links) {
    if (BeingCreated(*link)) Interrupt(std::exchange(link, nullptr));
  }
  std::erase(links, nullptr);
  if (links.empty()) return;
  if (const absl::Status entered = device_->Enter(links.front()->context); !entered.ok()) {
    REWIRE_WARN("abort %zu communicators: no device context: %s", links.size(),
                entered.ToString().c_str());
  }
  std::vector<RealCommunicator> reals;
  for (const auto& link : links) {
    if (link->generation == nullptr) continue;
    if (const ncclComm_t real = link->generation->Real(); real != nullptr) {
      reals.push_back({real, link->blocking});
    }
  }
  bool left = true;
  AbortAll(
      *nccl_, reals, [&] { WaitUntilLeft(links, false, kSettle); },
      [&] {
        left = WaitUntilLeft(links, true, kLeave);
        if (left) return;
        REWIRE_WARN("abort %zu communicators: a thread did not leave NCCL within %lld ms",
                    reals.size(), static_cast<long long>(kLeave.count()));
      });
  counters_->aborted += reals.size();
  for (const auto& link : links) {
    if (link->generation != nullptr) services_->free_generation(link->generation);
    // A thread inside may still pass the memory to a kernel.
    if (left && device_->Enter(link->context).ok()) FreeHandles(device_, *link);
  }
}

}  // namespace rewire::shim
