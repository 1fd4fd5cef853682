#include "shim/core/shim_communicators.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdlib>
#include <future>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "shim/core/bootstrap_root.h"
#include "shim/core/warm_up.h"

namespace rewire::shim {

namespace {

// The largest number of blocks of NCCL's kernels without a setting.
constexpr long kBlocks = 32;
constexpr seconds kEnding(10);
// A report at once would compete with the first operations on the new generation. An idle
// communicator may be pending for hours, so the looks become rare.
constexpr milliseconds kFirstLook(5);
constexpr milliseconds kRareLook(160);

// Returns the value of one of NCCL's settings; nullopt: not set, or not a positive number.
std::optional<long> NcclSetting(const char* name) {
  const char* const text = std::getenv(name);
  const long value = text != nullptr ? std::strtol(text, nullptr, 0) : 0;
  return value > 0 ? std::optional<long>(value) : std::nullopt;
}

// Returns the largest number of blocks of a kernel of this communicator. NCCL rounds the number for
// sends up to a power of two (ncclTopoComputeP2pChannels in 2.28 and 2.30).
size_t BlocksOf(const Recipe& recipe) {
  long most = kBlocks;
  const bool has_limit = recipe.config.size() >= offsetof(ncclConfig_t, maxCTAs) + sizeof(int);
  const int limit = has_limit ? recipe.Config()->maxCTAs : 0;
  if (const auto environment = NcclSetting("NCCL_MAX_CTAS")) {
    most = std::min(most, *environment);
  } else if (limit > 0) {
    most = std::min<long>(most, limit);
  }
  if (const auto channels = NcclSetting("NCCL_MAX_NCHANNELS")) most = std::min(most, *channels);
  for (const char* name : {"NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS"}) {
    most = std::max(most, NcclSetting(name).value_or(0));
  }
  return std::bit_ceil(static_cast<size_t>(most));
}

}  // namespace

void Passages::Look(uint64_t decision, milliseconds pause) {
  if (decisions_.load(std::memory_order_acquire) != decision) return;
  const std::vector<std::shared_ptr<Chain>> chains = chains_->All();
  const bool pending = std::any_of(chains.begin(), chains.end(), [](const auto& chain) {
    MutexLock lock(&chain->mutex);
    return !chain->pending.empty();
  });
  // Reports begin with the first delayed look, so that immediate switches are reported together.
  if (pause > milliseconds(0) && passed_.exchange(false, std::memory_order_acq_rel)) moved_();
  if (!pending && pause > milliseconds(0)) return;
  pause = std::clamp(2 * pause, kFirstLook, kRareLook);
  queue_->PostAt(Now() + pause, [this, decision, pause] { Look(decision, pause); });
}

ShimCommunicators::ShimCommunicators(const NcclCalls& nccl, const ShimServices* services,
                                     Device* device, Options options)
    : environment_{nccl, services, device, {}},
      build_(options.build),
      loss_report_(services),
      passages_(&chains_, &calls_, [this] { Moved(); }),
      pledges_(&environment_, &retirement_),
      publication_(&environment_, &retirement_),
      cutter_(&environment_, &chains_, &retirement_, this, options.decision, options.build),
      calls_("rw-core"),
      loss_(&environment_),
      retirement_(&environment_, &ledger_, options.retire, [this] { Moved(); }),
      builder_(&environment_, &ledger_, &loss_, this, options.stalled) {}

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

std::vector<elastic::Position> ShimCommunicators::Positions() {
  std::map<CommunicatorId, std::vector<elastic::Position>> ranks;
  // A generation moves from a chain to the retirement. Reading in this order misses none.
  for (const auto& chain : chains_.All()) {
    MutexLock lock(&chain->mutex);
    ranks[chain->id()].push_back(chain->Describe());
  }
  std::map<CommunicatorId, elastic::Position> positions;
  for (const auto& [id, of_ranks] : ranks) positions[id] = CombinePositions(of_ranks);
  for (const elastic::GenerationId& old : retirement_.Held()) {
    elastic::Position& position = positions[old.communicator];
    position.communicator = old.communicator;
    // Another rank may still need a generation that is out of use on one rank.
    const bool pending =
        std::any_of(position.pending.begin(), position.pending.end(),
                    [&](const elastic::PendingSwap& swap) { return swap.epoch == old.epoch; });
    if (pending || (position.open && position.in_use == old.epoch)) continue;
    if (position.old.empty() || position.old.back() != old.epoch) position.old.push_back(old.epoch);
  }
  std::vector<elastic::Position> all;
  for (auto& [id, position] : positions) all.push_back(std::move(position));
  return all;
}

void ShimCommunicators::Moved() {
  if (events() != nullptr) events()->Moved();
}

std::vector<elastic::CommunicatorCounter> ShimCommunicators::Counters() {
  std::map<CommunicatorId, uint64_t> furthest;
  for (const auto& chain : chains_.All()) {
    uint64_t& issued = furthest[chain->id()];
    issued = std::max(issued, chain->comm->issued.load(std::memory_order_relaxed));
  }
  std::vector<elastic::CommunicatorCounter> counters;
  for (const auto& [id, issued] : furthest) counters.push_back({id, issued});
  return counters;
}

bool ShimCommunicators::MayRunBeside(const Chain& chain) {
  if (environment_.counters.beside_refused.load() != 0) return false;
  if (!environment_.device->Enter(chain.context).ok()) return false;
  const std::vector<std::shared_ptr<Chain>> all = chains_.All();
  // All communicators may be in the middle of an operation when the new operation runs. Each
  // operation waits for the other members while it is resident.
  size_t blocks = BlocksOf(chain.comm->recipe);
  for (const auto& each : all) {
    if (MayShareDevice(each->context, chain.context)) blocks += BlocksOf(each->comm->recipe);
  }
  return environment_.device->ResidentBlocks() >= blocks;
}

absl::StatusOr<elastic::UniqueIdBytes> ShimCommunicators::Mint(const CommunicatorId& communicator) {
  if (environment_.exit_gate->Closing()) {
    return absl::CancelledError("ncclGetUniqueId: the process is ending");
  }
  ncclUniqueId id;
  if (const ncclResult_t result = environment_.nccl.GetUniqueId(&id); result != ncclSuccess) {
    return absl::InternalError(
        absl::StrCat("ncclGetUniqueId: ", environment_.nccl.Describe(result)));
  }
  // By then every build with this id has ended at its deadline. The program keeps other ids.
  if (const uint64_t root = communicator != kUpdateBoundary ? BootstrapRootOf(id) : 0) {
    calls_.PostAt(Now() + 2 * build_, [root] { EndBootstrapRoot(root); });
  }
  elastic::UniqueIdBytes bytes(id.internal, sizeof id.internal);
  const std::vector<std::shared_ptr<Chain>> ranks = chains_.RanksOf(communicator);
  // A thread that drives several ranks may issue the next operation rank by rank, after a first one
  // in a group: then the generation must be connected.
  if (ranks.size() == 1 && IsUnused(*ranks.front()->comm)) {
    bytes += kUnused;
  } else if (!ranks.empty()) {
    const bool beside = std::all_of(ranks.begin(), ranks.end(),
                                    [&](const auto& chain) { return MayRunBeside(*chain); });
    // All ranks see the same collectives.
    std::vector<UsageClass> usage = UsageOf(*ranks.front()->comm);
    if (beside) {
      bytes += kBeside;
    } else if (std::find(usage.begin(), usage.end(), kTinyOperation) == usage.end()) {
      usage.insert(usage.begin(), kTinyOperation);
    }
    bytes += EncodeUsage(usage);
  }
  // Keep whole classes of three bytes only.
  if (bytes.size() > elastic::kMaxUniqueIdBytes) {
    bytes.resize(sizeof id.internal + (elastic::kMaxUniqueIdBytes - sizeof id.internal) / 3 * 3);
  }
  return bytes;
}

void ShimCommunicators::Build(Epoch epoch, std::vector<elastic::CommunicatorBuild> builds,
                              Time deadline, std::function<void(absl::Status)> done) {
  for (const auto& chain : chains_.All()) {
    const uint32_t pins = chain->comm->pins.load(std::memory_order_relaxed);
    const bool listed = std::any_of(
        builds.begin(), builds.end(),
        [&](const elastic::CommunicatorBuild& b) { return b.communicator == chain->id(); });
    if (pins == 0 || !listed) continue;
    ++environment_.counters.failed_builds;
    calls_.Post([done = std::move(done), id = chain->id(), text = DescribePins(pins)] {
      done(absl::FailedPreconditionError(absl::StrCat(
          "communicator ", absl::Hex(id.high >> 32, absl::kZeroPad8), " is pinned: ", text)));
    });
    return;
  }
  builder_.Build(epoch, std::move(builds), deadline, std::move(done));
}

std::vector<std::shared_ptr<Chain>> ShimCommunicators::Find(const CommunicatorId& id,
                                                            bool* may_come) {
  *may_come = events() != nullptr && events()->ComesWithBuild(id);
  return chains_.RanksOf(id);
}

bool ShimCommunicators::Quiet() { return retirement_.Finish() && !loss_.Aborting(); }

bool ShimCommunicators::Hold() {
  if (!retirement_.Hold(build_)) return false;
  if (!loss_.AbortingFor(build_)) return true;
  retirement_.Resume();
  return false;
}

bool ShimCommunicators::Install(const std::shared_ptr<Chain>& chain, std::unique_ptr<Link>* link) {
  std::vector<std::unique_ptr<Link>> replaced;
  if (!publication_.Install(chain.get(), link, &replaced)) return false;
  loss_.AbortUnused(std::move(replaced));
  return true;
}

std::optional<elastic::CutRefusal> ShimCommunicators::Pledge(Epoch epoch,
                                                             const std::vector<Cut>& cuts) {
  for (const Cut& cut : cuts) {
    const std::vector<std::shared_ptr<Chain>> ranks = chains_.RanksOf(cut.communicator);
    std::optional<std::string> refused;
    if (ranks.empty()) refused = "the communicator does not exist in this process";
    for (size_t i = 0; i < ranks.size() && !refused; ++i) {
      refused = pledges_.Pledge(ranks[i].get(), epoch, cut);
    }
    if (!refused) continue;
    // One rank's refusal takes the pledges of all ranks and communicators back.
    for (const auto& chain : chains_.All()) pledges_.Decide(chain.get(), epoch, false);
    return elastic::CutRefusal{cut.communicator, *refused};
  }
  return std::nullopt;
}

void ShimCommunicators::Decide(Epoch epoch, bool go) {
  for (const auto& chain : chains_.All()) pledges_.Decide(chain.get(), epoch, go);
  if (go) passages_.Watch();
}

void ShimCommunicators::Undecided(Epoch epoch) {
  if (events() != nullptr) events()->Undecided(epoch);
}

void ShimCommunicators::GivenUp(const std::string& reason) { AbortCurrent(reason); }

void ShimCommunicators::SwapNow(Epoch epoch) {
  loss_report_.End();
  for (const auto& chain : chains_.All()) {
    // The event after the last operation belongs to the communicator's context.
    if (const absl::Status entered = environment_.device->Enter(chain->context); !entered.ok()) {
      REWIRE_WARN("swap to epoch %llu at the update boundary: no device context: %s",
                  static_cast<unsigned long long>(epoch), entered.ToString().c_str());
    }
    publication_.SwapNow(chain.get(), epoch);
  }
}

void ShimCommunicators::SwapPending(Epoch epoch) {
  for (const auto& chain : chains_.All()) {
    if (!publication_.IsDue(chain.get(), epoch)) continue;
    // A launch under way must be on its stream before the event that follows it.
    cutter_.BeforeCut(chain.get(), {chain->comm->last_stream.load(), 0});
    const InContext context(environment_.device, chain->context);
    publication_.SwapPending(chain.get(), epoch);
  }
  Moved();
}

void ShimCommunicators::Retire(std::vector<elastic::GenerationId> generations) {
  retirement_.Retire(std::move(generations));
}

void ShimCommunicators::Abandon(Epoch epoch) {
  builder_.Cancel(epoch, absl::StrCat("the transition to epoch ", epoch, " was aborted"));
  std::vector<std::unique_ptr<Link>> dropped;
  for (const auto& chain : chains_.All()) {
    pledges_.Decide(chain.get(), epoch, false);
    publication_.Abandon(chain.get(), epoch, &dropped);
  }
  if (!dropped.empty()) loss_.Abort(std::move(dropped));
}

void ShimCommunicators::AbortCurrent(std::string reason) {
  REWIRE_WARN("abort all communicators of this process: %s", reason.c_str());
  loss_report_.Begin(reason);
  builder_.Cancel(0, reason);
  const std::vector<std::shared_ptr<Chain>> chains = chains_.All();
  std::vector<std::unique_ptr<Link>> links;
  for (const auto& chain : chains) publication_.Lose(chain.get(), reason, &links);
  for (std::unique_ptr<Link>& link : retirement_.TakeAll()) links.push_back(std::move(link));
  Moved();
  loss_.Abort(std::move(links));
}

}  // namespace rewire::shim
