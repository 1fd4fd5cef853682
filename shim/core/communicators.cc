#include "shim/core/communicators.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "shim/core/pins.h"
#include "shim/core/warm_up.h"

namespace rewire::shim {

namespace {

constexpr milliseconds kInside(20);
// As many as NCCL's kernels have by default.
constexpr size_t kBlocksPerCommunicator = 32;
constexpr seconds kEnding(10);
// Reporting at once would compete with the first operations on the new generation.
constexpr milliseconds kEnteredAfter(5);

CommunicatorCreated Describe(Chain* chain) {
  CommunicatorCreated created;
  created.communicator = chain->id;
  const uint32_t pins = chain->comm->pins.load(std::memory_order_relaxed);
  created.pinned = pins != 0;
  if (created.pinned) created.reason = DescribePins(pins);
  MutexLock lock(&chain->mutex);
  created.ranks = chain->ranks;
  created.rank = chain->rank;
  return created;
}

}  // namespace

ShimCommunicators::ShimCommunicators(const NcclCalls& nccl, const ShimServices* services,
                                     Device* device, Options options)
    : nccl_(nccl),
      services_(services),
      device_(device),
      options_(options),
      cutter_(&nccl_, services, device, &counters_, this, options.decision),
      calls_("rw-core"),
      loss_(&nccl_, services, device, &counters_),
      retirement_(&nccl_, services, device, &counters_, options.retire),
      builder_(&nccl_, services, device, &counters_, &ledger_, &loss_, this, options.stalled) {}

ShimCommunicators::~ShimCommunicators() {
  // What was never retired ends here, behind everything that was given to be aborted before.
  auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  loss_.Abort(retirement_.TakeAll());
  loss_.After([ended] { ended->set_value(); });
  if (end.wait_for(kEnding) != std::future_status::ready) {
    REWIRE_WARN("old generations are left behind: aborting them takes too long");
  }
}

std::shared_ptr<Chain> ShimCommunicators::ChainOf(VirtualCommunicator* comm) {
  MutexLock lock(&mutex_);
  const auto it = chains_.find(comm);
  return it != chains_.end() ? it->second : nullptr;
}

std::vector<std::shared_ptr<Chain>> ShimCommunicators::Chains() {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Chain>> all;
  for (const auto& [comm, chain] : chains_) all.push_back(chain);
  return all;
}

std::vector<CommunicatorCreated> ShimCommunicators::List() {
  std::vector<CommunicatorCreated> list;
  for (const auto& chain : Chains()) list.push_back(Describe(chain.get()));
  return list;
}

std::vector<CommunicatorCounter> ShimCommunicators::Counters() {
  std::vector<CommunicatorCounter> counters;
  for (const auto& chain : Chains()) {
    counters.push_back({chain->id, chain->comm->issued.load(std::memory_order_relaxed)});
  }
  return counters;
}

bool ShimCommunicators::MayRunBeside(const Chain& chain, size_t chains) {
  if (counters_.beside_refused.load(std::memory_order_relaxed) != 0) return false;
  if (!device_->Enter(chain.context).ok()) return false;
  // All of them may be in the middle of an operation when the new one runs, and each waits for the
  // other members while it is resident.
  return device_->ResidentBlocks() >= kBlocksPerCommunicator * (chains + 1);
}

absl::StatusOr<UniqueIdBytes> ShimCommunicators::Mint(const CommunicatorId& communicator) {
  ncclUniqueId id;
  if (const ncclResult_t result = nccl_.GetUniqueId(&id); result != ncclSuccess) {
    return absl::InternalError(
        absl::StrCat("ncclGetUniqueId failed with ncclResult ", static_cast<int>(result)));
  }
  UniqueIdBytes bytes(id.internal, sizeof id.internal);
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  for (const auto& chain : chains) {
    if (chain->id != communicator) continue;
    if (MayRunBeside(*chain, chains.size())) bytes += kBeside;
    bytes += EncodeUsage(UsageOf(*chain->comm));
  }
  // Whole classes of three bytes only.
  if (bytes.size() > kMaxUniqueIdBytes) {
    bytes.resize(sizeof id.internal + (kMaxUniqueIdBytes - sizeof id.internal) / 3 * 3);
  }
  return bytes;
}

void ShimCommunicators::Build(Epoch epoch, std::vector<CommunicatorBuild> builds, Time deadline,
                              std::function<void(absl::Status)> done) {
  for (const auto& chain : Chains()) {
    const uint32_t pins = chain->comm->pins.load(std::memory_order_relaxed);
    const bool listed = std::any_of(builds.begin(), builds.end(), [&](const CommunicatorBuild& b) {
      return b.communicator == chain->id;
    });
    if (pins == 0 || !listed) continue;
    counters_.failed_builds.fetch_add(1, std::memory_order_relaxed);
    calls_.Post([done = std::move(done), text = DescribePins(pins)] {
      done(absl::FailedPreconditionError(absl::StrCat("a communicator cannot be swapped: ", text)));
    });
    return;
  }
  builder_.Build(epoch, std::move(builds), deadline, std::move(done));
}

std::shared_ptr<Chain> ShimCommunicators::Find(const CommunicatorId& id, bool* may_come) {
  for (auto& chain : Chains()) {
    if (chain->id == id) return chain;
  }
  *may_come = events() != nullptr && events()->ComesWithBuild(id);
  return nullptr;
}

bool ShimCommunicators::Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) {
  std::vector<std::unique_ptr<Link>> replaced;
  {
    MutexLock lock(&chain->mutex);
    if (chain->closing || chain->comm->pins.load(std::memory_order_relaxed) != 0) return false;
    if (chain->awaits_build) {
      // A joiner's first. Its handle is whole from now on; operations have to wait for the epoch.
      chain->awaits_build = false;
      chain->stop = Stop::kNotEntered;
      chain->comm->stop_at.store(0, std::memory_order_release);
      chain->ranks = (*link)->ranks;
      chain->rank = (*link)->rank;
      chain->current = std::move(*link);
      Generation* before = services_->publish(chain->comm, chain->current->generation);
      if (before != nullptr) services_->free_generation(before);
      chain->changed.NotifyAll();
    } else {
      if (chain->next != nullptr) replaced.push_back(std::move(chain->next));
      chain->next = std::move(*link);
    }
  }
  loss_.AbortUnused(std::move(replaced));
  return true;
}

bool ShimCommunicators::Pledge(Epoch epoch, const std::vector<Cut>& cuts) {
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  for (const Cut& cut : cuts) {
    const auto it = std::find_if(chains.begin(), chains.end(),
                                 [&](const auto& chain) { return chain->id == cut.communicator; });
    if (it != chains.end() && cutter_.Pledge(it->get(), epoch, cut)) continue;
    for (const auto& chain : chains) cutter_.Decide(chain.get(), epoch, false);
    return false;
  }
  return true;
}

void ShimCommunicators::Decide(Epoch epoch, bool go, std::function<void(uint64_t)> entered) {
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  if (!go) {
    for (const auto& chain : chains) cutter_.Decide(chain.get(), epoch, false);
    return;
  }
  {
    MutexLock lock(&mutex_);
    passages_.emplace(epoch, Passage{chains.size() + 1, 0, std::move(entered)});
  }
  for (const auto& chain : chains) {
    if (cutter_.Decide(chain.get(), epoch, true)) continue;
    MutexLock lock(&chain->mutex);
    // A member that gave its generations up is not in the epoch.
    if (!chain->lost) calls_.Post([this, epoch] { Passed(epoch, 0); });
  }
  Passed(epoch, 0);
  LookAtPassage(epoch, false);
}

void ShimCommunicators::Passed(Epoch epoch, uint64_t host_waits) {
  MutexLock lock(&mutex_);
  const auto it = passages_.find(epoch);
  if (it == passages_.end()) return;
  it->second.host_waits += host_waits;
  --it->second.left;
}

void ShimCommunicators::LookAtPassage(Epoch epoch, bool last_look) {
  Passage passed;
  {
    MutexLock lock(&mutex_);
    const auto it = passages_.find(epoch);
    if (it == passages_.end()) return;
    const bool all = it->second.left == 0;
    if (!all || !last_look) {
      calls_.PostAt(Now() + kEnteredAfter, [this, epoch, all] { LookAtPassage(epoch, all); });
      return;
    }
    passed = std::move(it->second);
    passages_.erase(it);
  }
  if (passed.entered) passed.entered(passed.host_waits);
}

void ShimCommunicators::Undecided(Epoch epoch) {
  if (events() != nullptr) events()->Undecided(epoch);
}

void ShimCommunicators::GivenUp(const std::string& reason) { AbortCurrent(reason); }

void ShimCommunicators::SwapNow(Epoch epoch) {
  for (const auto& chain : Chains()) {
    // The event behind the last operation belongs to the communicator's context.
    if (const absl::Status entered = device_->Enter(chain->context); !entered.ok()) {
      REWIRE_WARN("no device context at the update boundary: %s", entered.ToString().c_str());
    }
    cutter_.SwapNow(chain.get(), epoch);
  }
}

void ShimCommunicators::Retire(Epoch epoch, std::function<void()> done) {
  retirement_.Retire(epoch, std::move(done));
}

void ShimCommunicators::Abandon(Epoch epoch) {
  builder_.Cancel(epoch, absl::StrCat("epoch ", epoch, " was given up"));
  std::vector<std::unique_ptr<Link>> dropped;
  for (const auto& chain : Chains()) {
    cutter_.Decide(chain.get(), epoch, false);
    MutexLock lock(&chain->mutex);
    const bool follows = chain->epoch == epoch && chain->stop >= Stop::kUndecided;
    if (chain->next != nullptr && chain->next->epoch == epoch && !follows) {
      dropped.push_back(std::move(chain->next));
    }
    if (chain->stop == Stop::kNotEntered && chain->current->epoch == epoch) {
      // A joiner goes on waiting for its first generation.
      Generation* empty = services_->new_generation(0, static_cast<int>(chain->ranks),
                                                    static_cast<int>(chain->rank));
      services_->publish(chain->comm, empty);
      chain->awaits_build = true;
      dropped.push_back(std::move(chain->current));
    }
  }
  if (!dropped.empty()) loss_.Abort(std::move(dropped));
}

const char* ShimCommunicators::Keep(const std::string& reason) {
  MutexLock lock(&mutex_);
  return reasons_.insert(reason).first->c_str();
}

void ShimCommunicators::Lose(Chain* chain, const char* reason,
                             std::vector<std::unique_ptr<Link>>* links) {
  MutexLock lock(&chain->mutex);
  if (chain->closing) return;
  if (chain->next != nullptr) links->push_back(std::move(chain->next));
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
  chain->lost_why = reason;
  chain->wait_first = nullptr;
  chain->stop = Stop::kNone;
  chain->comm->stop_at.store(kNoCut, std::memory_order_release);
  chain->changed.NotifyAll();
}

void ShimCommunicators::AbortCurrent(std::string reason) {
  REWIRE_WARN("aborting every communicator of this process: %s", reason.c_str());
  const char* why = Keep(reason);
  builder_.Cancel(0, reason);
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  std::vector<std::unique_ptr<Link>> links;
  for (const auto& chain : chains) Lose(chain.get(), why, &links);
  for (std::unique_ptr<Link>& link : retirement_.TakeAll()) links.push_back(std::move(link));
  {
    MutexLock lock(&mutex_);
    passages_.clear();
  }
  loss_.Abort(std::move(links), [chains] {
    const Time until = Now() + kInside;
    for (const auto& chain : chains) {
      MutexLock lock(&chain->mutex);
      while (chain->inside && chain->changed.WaitUntil(&chain->mutex, until)) {
      }
    }
  });
}

}  // namespace rewire::shim
