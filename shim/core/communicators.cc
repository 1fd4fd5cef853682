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

// The default number of blocks of NCCL's kernels.
constexpr size_t kBlocksPerCommunicator = 32;
constexpr seconds kEnding(10);
// A report at once would compete with the first operations on the new generation. An idle
// communicator may be pending for hours, so the looks become rare.
constexpr milliseconds kFirstLook(5);
constexpr milliseconds kRareLook(160);

}  // namespace

ShimCommunicators::ShimCommunicators(const NcclCalls& nccl, const ShimServices* services,
                                     Device* device, Options options)
    : nccl_(nccl),
      services_(services),
      device_(device),
      options_(options),
      cutter_(&nccl_, services, device, &counters_, this, options.decision, options.build),
      calls_("rw-core"),
      loss_(&nccl_, services, device, &counters_),
      retirement_(&nccl_, services, device, &counters_, options.retire, [this] { Moved(); }),
      builder_(&nccl_, services, device, &counters_, &ledger_, &loss_, this, options.stalled) {}

ShimCommunicators::~ShimCommunicators() {
  // Ends generations that were never retired, after all aborts that were posted before.
  auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  loss_.Abort(retirement_.TakeAll());
  loss_.After([ended] { ended->set_value(); });
  if (end.wait_for(kEnding) != std::future_status::ready) {
    REWIRE_WARN("end: abort of old generations: timed out after %lld s; they are not freed",
                static_cast<long long>(kEnding.count()));
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

elastic::CommunicatorCreated ShimCommunicators::DescribeCreated(Chain* chain) {
  elastic::CommunicatorCreated created;
  created.communicator = chain->id;
  const uint32_t pins = chain->comm->pins.load(std::memory_order_relaxed);
  created.pinned = pins != 0;
  if (created.pinned) created.reason = DescribePins(pins);
  MutexLock lock(&chain->mutex);
  created.ranks = chain->ranks;
  created.rank = chain->rank;
  return created;
}

std::vector<std::shared_ptr<Chain>> ShimCommunicators::NonBlocking() {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Chain>> found;
  for (const auto& [comm, chain] : chains_) {
    if (!chain->blocking) found.push_back(chain);
  }
  return found;
}

std::vector<elastic::CommunicatorCreated> ShimCommunicators::List() {
  std::vector<elastic::CommunicatorCreated> list;
  for (const auto& chain : Chains()) list.push_back(DescribeCreated(chain.get()));
  return list;
}

std::vector<elastic::Position> ShimCommunicators::Positions() {
  std::map<CommunicatorId, elastic::Position> positions;
  // A generation moves from a chain to the retirement. Reading in this order misses none.
  for (const auto& chain : Chains()) {
    MutexLock lock(&chain->mutex);
    positions[chain->id] = chain->Describe();
  }
  for (const elastic::GenerationId& old : retirement_.Held()) {
    elastic::Position& position = positions[old.communicator];
    position.communicator = old.communicator;
    if (!position.open || position.in_use != old.epoch) position.old.push_back(old.epoch);
  }
  std::vector<elastic::Position> all;
  for (auto& [id, position] : positions) all.push_back(std::move(position));
  return all;
}

void ShimCommunicators::Moved() {
  if (events() != nullptr) events()->Moved();
}

bool ShimCommunicators::HasRank(const CommunicatorId& id) const {
  return std::any_of(chains_.begin(), chains_.end(),
                     [&](const auto& each) { return each.second->id == id; });
}

std::vector<elastic::CommunicatorCounter> ShimCommunicators::Counters() {
  std::vector<elastic::CommunicatorCounter> counters;
  for (const auto& chain : Chains()) {
    counters.push_back({chain->id, chain->comm->issued.load(std::memory_order_relaxed)});
  }
  return counters;
}

bool ShimCommunicators::MayRunBeside(const Chain& chain, size_t chains) {
  if (counters_.beside_refused.load() != 0) return false;
  if (!device_->Enter(chain.context).ok()) return false;
  // All communicators may be in the middle of an operation when the new operation runs. Each
  // operation waits for the other members while it is resident.
  return device_->ResidentBlocks() >= kBlocksPerCommunicator * (chains + 1);
}

absl::StatusOr<elastic::UniqueIdBytes> ShimCommunicators::Mint(const CommunicatorId& communicator) {
  ncclUniqueId id;
  if (const ncclResult_t result = nccl_.GetUniqueId(&id); result != ncclSuccess) {
    return absl::InternalError(
        absl::StrCat("ncclGetUniqueId: ncclResult=", static_cast<int>(result)));
  }
  elastic::UniqueIdBytes bytes(id.internal, sizeof id.internal);
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  for (const auto& chain : chains) {
    if (chain->id != communicator) continue;
    if (MayRunBeside(*chain, chains.size())) bytes += kBeside;
    bytes += EncodeUsage(UsageOf(*chain->comm));
  }
  // Keep whole classes of three bytes only.
  if (bytes.size() > elastic::kMaxUniqueIdBytes) {
    bytes.resize(sizeof id.internal + (elastic::kMaxUniqueIdBytes - sizeof id.internal) / 3 * 3);
  }
  return bytes;
}

void ShimCommunicators::Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds,
                              Time deadline, std::function<void(absl::Status)> done) {
  for (const auto& chain : Chains()) {
    const uint32_t pins = chain->comm->pins.load(std::memory_order_relaxed);
    const bool listed = std::any_of(
        builds.begin(), builds.end(),
        [&](const elastic::CommunicatorBuild& b) { return b.communicator == chain->id; });
    if (pins == 0 || !listed) continue;
    ++counters_.failed_builds;
    calls_.Post([done = std::move(done), id = chain->id, text = DescribePins(pins)] {
      done(absl::FailedPreconditionError(absl::StrCat(
          "communicator ", absl::Hex(id.high >> 32, absl::kZeroPad8), " is pinned: ", text)));
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
      if (chain->built != nullptr) replaced.push_back(std::move(chain->built));
      chain->built = std::move(*link);
    }
  }
  loss_.AbortUnused(std::move(replaced));
  return true;
}

std::optional<elastic::CutRefusal> ShimCommunicators::Pledge(Epoch epoch,
                                                             const std::vector<Cut>& cuts) {
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  for (const Cut& cut : cuts) {
    const auto it = std::find_if(chains.begin(), chains.end(),
                                 [&](const auto& chain) { return chain->id == cut.communicator; });
    const std::optional<std::string> refused =
        it != chains.end()
            ? cutter_.Pledge(it->get(), epoch, cut)
            : std::optional<std::string>("the communicator does not exist in this process");
    if (!refused) continue;
    for (const auto& chain : chains) cutter_.Decide(chain.get(), epoch, false);
    return elastic::CutRefusal{cut.communicator, *refused};
  }
  return std::nullopt;
}

void ShimCommunicators::Decide(Epoch epoch, bool go) {
  for (const auto& chain : Chains()) cutter_.Decide(chain.get(), epoch, go);
  if (!go) return;
  // Earlier series of looks end, so that only one series runs.
  LookForPassages(decisions_.fetch_add(1, std::memory_order_acq_rel) + 1, milliseconds(0));
}

void ShimCommunicators::LookForPassages(uint64_t decision, milliseconds pause) {
  if (decisions_.load(std::memory_order_acquire) != decision) return;
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  const bool pending = std::any_of(chains.begin(), chains.end(), [](const auto& chain) {
    MutexLock lock(&chain->mutex);
    return !chain->pending.empty();
  });
  // Reports begin with the first delayed look, so that immediate switches are reported together.
  if (pause > milliseconds(0) && passed_.exchange(false, std::memory_order_acq_rel)) Moved();
  if (!pending && pause > milliseconds(0)) return;
  pause = std::clamp(2 * pause, kFirstLook, kRareLook);
  calls_.PostAt(Now() + pause, [this, decision, pause] { LookForPassages(decision, pause); });
}

void ShimCommunicators::Undecided(Epoch epoch) {
  if (events() != nullptr) events()->Undecided(epoch);
}

void ShimCommunicators::GivenUp(const std::string& reason) { AbortCurrent(reason); }

void ShimCommunicators::SwapNow(Epoch epoch) {
  lost_.store(false, std::memory_order_seq_cst);
  for (const auto& chain : Chains()) {
    // The event after the last operation belongs to the communicator's context.
    if (const absl::Status entered = device_->Enter(chain->context); !entered.ok()) {
      REWIRE_WARN("swap to epoch %llu at the update boundary: no device context: %s",
                  static_cast<unsigned long long>(epoch), entered.ToString().c_str());
    }
    cutter_.SwapNow(chain.get(), epoch);
  }
}

void ShimCommunicators::Retire(std::vector<elastic::GenerationId> generations) {
  retirement_.Retire(std::move(generations));
}

void ShimCommunicators::Abandon(Epoch epoch) {
  builder_.Cancel(epoch, absl::StrCat("the transition to epoch ", epoch, " was aborted"));
  std::vector<std::unique_ptr<Link>> dropped;
  for (const auto& chain : Chains()) {
    cutter_.Decide(chain.get(), epoch, false);
    MutexLock lock(&chain->mutex);
    // The generation of a decided swap is not here: it waits in `pending`.
    if (chain->built != nullptr && chain->built->epoch == epoch) {
      dropped.push_back(std::move(chain->built));
    }
    if (chain->not_entered && chain->current->epoch == epoch) {
      // A joiner continues to wait for its first generation.
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
  chain->lost_why = reason;
  chain->wait_first = nullptr;
  chain->not_entered = false;
  chain->Arm();
}

void ShimCommunicators::AbortCurrent(std::string reason) {
  REWIRE_WARN("abort all communicators of this process: %s", reason.c_str());
  const char* why = Keep(reason);
  lost_.store(true, std::memory_order_seq_cst);
  builder_.Cancel(0, reason);
  const std::vector<std::shared_ptr<Chain>> chains = Chains();
  std::vector<std::unique_ptr<Link>> links;
  for (const auto& chain : chains) Lose(chain.get(), why, &links);
  for (std::unique_ptr<Link>& link : retirement_.TakeAll()) links.push_back(std::move(link));
  Moved();
  loss_.Abort(std::move(links));
}

}  // namespace rewire::shim
