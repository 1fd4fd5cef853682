#include "shim/core/loss.h"

#include <algorithm>
#include <utility>

#include "reconfig/base/log.h"
#include "shim/core/real_communicator.h"

namespace rewire::shim {

namespace {

// A thread that is about to enter NCCL gets in within microseconds; one that is blocked inside
// comes out only through the abort.
constexpr milliseconds kEntering(20);

}  // namespace

void Loss::Abort(std::vector<std::unique_ptr<Link>> links, std::function<void()> before) {
  auto shared = std::make_shared<std::vector<std::unique_ptr<Link>>>(std::move(links));
  queue_.Post([this, shared, before = std::move(before)] {
    if (before) before();
    AbortAndFree(*shared, true);
  });
}

void Loss::AbortUnused(std::vector<std::unique_ptr<Link>> links) { AbortAndFree(links, false); }

void Loss::AbortAndFree(const std::vector<std::unique_ptr<Link>>& links, bool published) {
  if (links.empty()) return;
  if (const absl::Status entered = device_->Enter(links.front()->context); !entered.ok()) {
    REWIRE_WARN("aborting without a device context: %s", entered.ToString().c_str());
  }
  std::vector<RealCommunicator> reals;
  for (const auto& link : links) {
    if (link->generation == nullptr) continue;
    if (const ncclComm_t real = link->generation->Real(); real != nullptr) {
      reals.push_back({real, link->blocking});
    }
  }
  if (published) {
    RevokeAll(*nccl_, reals);
    const Time until = Now() + kEntering;
    for (const auto& link : links) {
      if (link->generation == nullptr) continue;
      const auto left = std::chrono::duration_cast<milliseconds>(until - Now()).count();
      services_->quiesce(link->generation, std::max<int64_t>(left, 0));
    }
  }
  AbortAll(*nccl_, reals);
  counters_->aborted.fetch_add(reals.size(), std::memory_order_relaxed);
  for (const auto& link : links) {
    if (link->generation != nullptr) services_->free_generation(link->generation);
    if (link->end_of_previous != nullptr) device_->DestroyEvent(link->end_of_previous);
  }
}

}  // namespace rewire::shim
