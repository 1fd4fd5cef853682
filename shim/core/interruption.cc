#include "shim/core/interruption.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include "reconfig/base/log.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kPoll(2);

// Opens a group and aborts in the group. Returns false if no thread is inside, or NCCL refused.
bool AbortInOpenGroup(const NcclCalls& nccl, const ShimServices* services, Generation* generation) {
  // NCCL stores the handle early in the call.
  while (generation->Real() == nullptr) {
    if (services->quiesce(generation, 0)) return false;
    std::this_thread::sleep_for(kPoll);
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

void Interrupt(const NcclCalls& nccl, const ShimServices* services, Device* device,
               const Link& link) {
  pthread_setname_np(pthread_self(), "rw-interrupt");
  if (const absl::Status entered = device->Enter(link.context); !entered.ok()) {
    REWIRE_WARN("interrupt the initialisation of a communicator: no device context: %s",
                entered.ToString().c_str());
  }
  Generation* generation = link.generation;
  const bool grouped =
      nccl.abort_frees_at_group_end && AbortInOpenGroup(nccl, services, generation);
  while (!services->quiesce(generation, 0)) std::this_thread::sleep_for(kPoll);
  if (grouped) {
    static_cast<void>(nccl.GroupEnd());
  } else if (const ncclComm_t real = generation->Real()) {
    static_cast<void>(nccl.CommAbort(real));
  }
  services->free_generation(generation);
  if (link.end_of_previous != nullptr) device->DestroyEvent(link.end_of_previous);
}

}  // namespace

void InterruptAndFree(const NcclCalls& nccl, const ShimServices* services, Device* device,
                      std::unique_ptr<Link> link) {
  std::thread([nccl, services, device, link = std::move(link)] {
    Interrupt(nccl, services, device, *link);
  }).detach();
}

}  // namespace rewire::shim
