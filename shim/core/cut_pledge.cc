// The participant's part of a cut: the pledge, and the effect of a decision on the queue of pending
// swaps. See cut.h. On the participant's thread.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/elastic/protocol/messages.h"
#include "shim/core/cut.h"

namespace rewire::shim {

namespace {

// With fewer operations before the warm index, the application's thread would have to wait.
constexpr uint64_t kRoom = 2;

std::string HasBegun(const Link& link) {
  return absl::StrCat("the program has begun the swap of epoch ", link.epoch);
}

}  // namespace

std::optional<std::string> Pledges::CheckPledge(Chain* chain, Epoch epoch, const Cut& cut) {
  if (chain->closing) return "the program is destroying the communicator";
  if (chain->lost) return absl::StrCat("the generations were aborted: ", chain->lost_why);
  if (chain->current == nullptr || chain->not_entered) {
    return "the communicator has no generation in use yet";
  }
  if (chain->built == nullptr || chain->built->epoch != epoch) {
    return absl::StrCat("no generation was built for epoch ", epoch);
  }
  if (cut.warm > cut.cut) {
    return absl::StrCat("warm=", cut.warm, ": must not be after the cut at ", cut.cut);
  }
  if (const uint32_t pins = chain->comm->pins.load(std::memory_order_relaxed); pins != 0) {
    return absl::StrCat("the communicator is pinned: ", DescribePins(pins));
  }
  for (const std::unique_ptr<Link>& link : chain->pending) {
    const elastic::CutOrder order =
        elastic::OrderOf(cut, {link->epoch, link->cut.warm, link->cut.cut});
    if (order == elastic::CutOrder::kFollows) continue;
    if (order == elastic::CutOrder::kCrosses) {
      return absl::StrCat("the cut at ", cut.cut, " crosses the pending swap of epoch ",
                          link->epoch, " at ", link->cut.cut);
    }
    if (link->begun) return HasBegun(*link);
  }
  // While the program's thread is between the swap and its first operation on the generation, the
  // count does not show the swap. Another member might still replace the swap, and would never do
  // its part of the warm operation and of the windows.
  const Link& current = *chain->current;
  const elastic::PendingSwap passed = {current.epoch, current.cut.warm, current.cut.cut};
  if (current.begun && elastic::OrderOf(cut, passed) != elastic::CutOrder::kFollows) {
    return HasBegun(current);
  }
  return std::nullopt;
}

std::optional<std::string> Pledges::Pledge(Chain* chain, Epoch epoch, const Cut& cut) {
  MutexLock lock(&chain->mutex);
  if (auto refused = CheckPledge(chain, epoch, cut)) return refused;
  chain->pledged = cut;
  chain->host_waits = 0;
  uint64_t issued = services_->pledge(chain->comm, chain->StopAt());
  std::optional<std::string> refused;
  if (cut.warm < cut.cut) {
    if (issued + kRoom > cut.warm) {
      refused = absl::StrCat("the program has issued ", issued, " operations: fewer than ", kRoom,
                             " are left before ", cut.warm);
    }
  } else {
    // The cut is at the next operation, so the count must be exact: a thread that entered before
    // the pledge may be about to issue an operation, or a group of operations.
    if (!services_->quiesce(chain->current->generation, 0)) {
      refused = "a thread of the program is inside the communicator";
    }
    issued = chain->comm->issued.load(std::memory_order_seq_cst);
    if (issued > cut.warm) {
      refused = absl::StrCat("the program has already issued operation ", cut.warm);
    } else if (CarriesPointToPoint(*chain->comm)) {
      refused = "the communicator carries point-to-point operations, which have no common index";
    }
  }
  if (refused) chain->pledged.reset();
  chain->Arm();
  return refused;
}

void Pledges::Decide(Chain* chain, Epoch epoch, bool go) {
  MutexLock lock(&chain->mutex);
  if (!chain->pledged || chain->built == nullptr || chain->built->epoch != epoch) return;
  const Cut cut = *chain->pledged;
  chain->pledged.reset();
  if (go) {
    const auto kept = std::find_if(
        chain->pending.begin(), chain->pending.end(), [&](const std::unique_ptr<Link>& link) {
          return elastic::OrderOf(cut, {link->epoch, link->cut.warm, link->cut.cut}) ==
                 elastic::CutOrder::kReplaces;
        });
    // The event after the last operation belongs to the first pending generation.
    if (kept == chain->pending.begin()) chain->current->end_recorded = false;
    for (auto link = kept; link != chain->pending.end(); ++link) {
      retirement_->Add(std::move(*link));
    }
    chain->pending.erase(kept, chain->pending.end());
    chain->built->cut = cut;
    chain->built->host_waits = chain->host_waits;
    chain->pending.push_back(std::move(chain->built));
  }
  chain->Arm();
}

}  // namespace rewire::shim
