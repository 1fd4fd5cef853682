#include "shim/core/chain.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::shim {

namespace {

const char* Text(Pin pin) {
  switch (pin) {
    case Pin::kGraph:
      return "an operation was captured into a CUDA graph";
    case Pin::kDeviceComm:
      return "a device communicator was made from the communicator";
    case Pin::kWindowPointer:
      return "the program holds addresses of its windows";
    case Pin::kSignals:
      return "the communicator carries one-sided signals";
    case Pin::kMixedModes:
      return "some ranks of this process are blocking and some non-blocking";
    case Pin::kGrown:
      return "the communicator was made by ncclCommGrow";
    case Pin::kSuspended:
      return "the program has suspended the communicator (ncclCommSuspend)";
  }
  return "unknown";
}

}  // namespace

std::string Name(const CommunicatorId& id) {
  return absl::StrCat(absl::Hex(id.high, absl::kZeroPad16), absl::Hex(id.low, absl::kZeroPad16));
}

std::string DescribePins(uint32_t pins) {
  std::string text;
  for (uint32_t bit = 0; bit < 32; ++bit) {
    if ((pins >> bit & 1) == 0) continue;
    if (!text.empty()) text += "; ";
    text += Text(static_cast<Pin>(1u << bit));
  }
  return text;
}

const char* KeepText(const std::string& text) {
  static auto* const mutex = new Mutex;
  static auto* const texts = new std::set<std::string>;
  MutexLock lock(mutex);
  return texts->insert(text).first->c_str();
}

const CommunicatorId* KeepIdentity(const CommunicatorId& id) {
  static auto* const mutex = new Mutex;
  static auto* const identities = new std::set<CommunicatorId>;
  MutexLock lock(mutex);
  return &*identities->insert(id).first;
}

bool IsCaptured(const VirtualCommunicator& comm) {
  return (comm.pins.load(std::memory_order_relaxed) & static_cast<uint32_t>(Pin::kGraph)) != 0;
}

void Chain::Arm() {
  const uint64_t stop_at = StopAt();
  comm->stop_at.store(stop_at, std::memory_order_release);
  changed.NotifyAll();
}

void FreeHandles(Device* device, const Link& link) {
  if (link.end_of_previous != nullptr) device->DestroyEvent(link.end_of_previous);
  if (link.launching != nullptr) device->DestroyStream(link.launching);
  if (link.scratch != nullptr) device->Free(link.scratch);
}

void Chain::TakeIdentity() {
  if (current->id == id()) return;
  const CommunicatorId* const kept = KeepIdentity(current->id);
  present_id.store(kept, std::memory_order_release);
  comm->present_id.store(kept, std::memory_order_release);
  // The members of the new group come from groups that have counted different numbers.
  comm->children.store(0, std::memory_order_relaxed);
  comm->shrinks.clear();
}

uint64_t Chain::StopAt() const {
  if (awaits_build || not_entered || fresh || wait_first != nullptr) return 0;
  uint64_t stop_at = kNoCut;
  if (pledged) stop_at = pledged->warm;
  if (!pending.empty()) stop_at = std::min(stop_at, pending.front()->NextIndex());
  return stop_at;
}

void Chain::TakePending(std::vector<std::unique_ptr<Link>>* links) {
  for (std::unique_ptr<Link>& link : pending) links->push_back(std::move(link));
  pending.clear();
}

elastic::Position Chain::Describe() const {
  elastic::Position position;
  position.communicator = id();
  position.open = current != nullptr;
  if (current != nullptr) {
    position.in_use = current->epoch;
    position.host_waits = current->host_waits;
  }
  for (const std::unique_ptr<Link>& link : pending) {
    position.pending.push_back({link->epoch, link->cut.warm, link->cut.cut});
  }
  position.point_to_point = CarriesPointToPoint(*comm);
  return position;
}

elastic::CommunicatorCreated Chain::DescribeCreated() {
  elastic::CommunicatorCreated created;
  created.communicator = id();
  const uint32_t pins = comm->pins.load(std::memory_order_relaxed);
  created.pinned = pins != 0;
  if (created.pinned) created.reason = DescribePins(pins);
  MutexLock lock(&mutex);
  created.ranks = ranks;
  created.held = {rank};
  return created;
}

elastic::Position CombinePositions(const std::vector<elastic::Position>& ranks) {
  elastic::Position all;
  for (const elastic::Position& rank : ranks) {
    all.communicator = rank.communicator;
    all.point_to_point = all.point_to_point || rank.point_to_point;
    // All ranks get the same swaps, so the queue of the rank furthest behind has those of the
    // others.
    if (rank.pending.size() > all.pending.size()) all.pending = rank.pending;
    if (!rank.open || (all.open && rank.in_use > all.in_use)) continue;
    const bool same = all.open && rank.in_use == all.in_use;
    all.open = true;
    all.in_use = rank.in_use;
    all.host_waits = rank.host_waits + (same ? all.host_waits : 0);
  }
  return all;
}

bool CarriesPointToPoint(const VirtualCommunicator& comm) {
  for (const Collective function : {Collective::kSend, Collective::kRecv}) {
    for (const auto& sizes : comm.seen[static_cast<unsigned>(function)]) {
      if (sizes.load(std::memory_order_relaxed) != 0) return true;
    }
  }
  return false;
}

bool Chains::HasRank(const CommunicatorId& id) const {
  return std::any_of(chains_.begin(), chains_.end(),
                     [&](const auto& each) { return each.second->id() == id; });
}

void Chains::Add(std::shared_ptr<Chain> chain) {
  MutexLock lock(&mutex_);
  VirtualCommunicator* const comm = chain->comm;
  chains_[comm] = std::move(chain);
}

Chains::Removed Chains::Remove(VirtualCommunicator* comm) {
  Removed removed;
  MutexLock lock(&mutex_);
  const auto it = chains_.find(comm);
  if (it == chains_.end()) return removed;
  removed.chain = std::move(it->second);
  chains_.erase(it);
  removed.several = HasRank(removed.chain->id());
  removed.last = chains_.empty();
  return removed;
}

std::shared_ptr<Chain> Chains::Of(VirtualCommunicator* comm) const {
  MutexLock lock(&mutex_);
  const auto it = chains_.find(comm);
  return it != chains_.end() ? it->second : nullptr;
}

std::vector<std::shared_ptr<Chain>> Chains::All() const {
  MutexLock lock(&mutex_);
  std::vector<std::shared_ptr<Chain>> all;
  for (const auto& [comm, chain] : chains_) all.push_back(chain);
  return all;
}

std::vector<std::shared_ptr<Chain>> Chains::RanksOf(const CommunicatorId& id) const {
  std::multimap<uint32_t, std::shared_ptr<Chain>> by_rank;
  for (const std::shared_ptr<Chain>& chain : All()) {
    if (chain->id() != id) continue;
    MutexLock lock(&chain->mutex);
    by_rank.emplace(chain->rank, chain);
  }
  std::vector<std::shared_ptr<Chain>> found;
  for (auto& [rank, chain] : by_rank) found.push_back(std::move(chain));
  return found;
}

}  // namespace rewire::shim
