#include "shim/core/loss.h"

#include <algorithm>
#include <utility>

#include "reconfig/base/log.h"
#include "shim/core/interruption.h"
#include "shim/core/real_communicator.h"

namespace rewire::shim {

namespace {

// No call on a non-blocking communicator waits for a peer, so its thread leaves within
// microseconds. The limit excludes a thread that keeps a group open for longer.
constexpr milliseconds kSettle(20);
// The abort flags bring a thread out of NCCL within milliseconds. The limit excludes a thread that
// a device holds for longer.
constexpr milliseconds kLeave(10000);

// Returns whether the program's own blocking creation has not returned, so that NCCL would free
// during the call. The preloaded library sets `device` after a creation has succeeded.
bool BeingCreated(const Link& link) {
  return link.created_by_program && link.blocking && link.generation != nullptr &&
         link.generation->device.load(std::memory_order_acquire) < 0;
}

}  // namespace

void Loss::Abort(std::vector<std::unique_ptr<Link>> links) {
  if (links.empty()) return;
  auto shared = std::make_shared<std::vector<std::unique_ptr<Link>>>(std::move(links));
  queue_.Post([this, shared] { AbortAndFree(std::move(*shared)); });
}

void Loss::AbortUnused(std::vector<std::unique_ptr<Link>> links) { AbortAndFree(std::move(links)); }

void Loss::Interrupt(std::unique_ptr<Link> link) {
  ++counters_->aborted;
  InterruptAndFree(*nccl_, services_, device_, std::move(link));
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
  AbortAll(
      *nccl_, reals, [&] { WaitUntilLeft(links, false, kSettle); },
      [&] {
        if (WaitUntilLeft(links, true, kLeave)) return;
        REWIRE_WARN("abort %zu communicators: a thread did not leave NCCL within %lld ms",
                    reals.size(), static_cast<long long>(kLeave.count()));
      });
  counters_->aborted += reals.size();
  for (const auto& link : links) {
    if (link->generation != nullptr) services_->free_generation(link->generation);
    if (link->end_of_previous != nullptr) device_->DestroyEvent(link->end_of_previous);
  }
}

}  // namespace rewire::shim
