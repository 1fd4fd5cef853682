// Keeps and merges requests; see request_queue.h. Owned by the leader's thread.
#include "reconfig/elastic/leader/request_queue.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::elastic {
namespace {

constexpr uint32_t kRequestAttempts = 5;

bool Contains(const std::vector<MemberId>& members, MemberId member);

// Returns a request without the members that an earlier request drains.
ChangeRequest Remaining(ChangeRequest change, const std::vector<MemberId>& members) {
  if (change.kind != RequestKind::kDrain) return change;
  std::erase_if(change.members, [&](MemberId m) { return !Contains(members, m); });
  return change;
}

bool Contains(const std::vector<MemberId>& members, MemberId member) {
  return std::find(members.begin(), members.end(), member) != members.end();
}

}  // namespace

uint64_t RequestQueue::Add(const ChangeRequest& change, uint32_t world_size,
                           std::optional<Time> gone_by) {
  const uint64_t id = next_id_++;
  requests_[id] = {change, gone_by, world_size, 0, {RequestState::kWaiting, Describe(change)}};
  waiting_.push_back(id);
  DropOutdated();
  return id;
}

void RequestQueue::PutBack(const std::vector<uint64_t>& ids) {
  waiting_.insert(waiting_.begin(), ids.begin(), ids.end());
  DropOutdated();
}

void RequestQueue::DropOutdated() {
  const auto resizes = [&](uint64_t id) { return change(id).kind == RequestKind::kResize; };
  const auto last = std::find_if(waiting_.rbegin(), waiting_.rend(), resizes);
  if (last == waiting_.rend()) return;
  const uint64_t valid = *last;
  std::erase_if(waiting_, [&](uint64_t id) {
    if (id == valid || !resizes(id)) return false;
    Resolve({id}, RequestState::kFailed,
            absl::StrCat("a later request replaces it: ", Describe(change(valid))));
    return true;
  });
}

void RequestQueue::Resolve(const std::vector<uint64_t>& ids, RequestState state,
                           const std::string& text) {
  for (const uint64_t id : ids) requests_.at(id).status = {state, text};
}

void RequestQueue::FailWaiting(const std::string& reason) {
  Resolve(waiting_, RequestState::kFailed, reason);
  waiting_.clear();
}

RequestStatus RequestQueue::StatusOf(uint64_t id) const {
  const auto it = requests_.find(id);
  return it == requests_.end() ? RequestStatus{} : it->second.status;
}

std::vector<MemberId> RequestQueue::AfterWaiting(std::vector<MemberId> members,
                                                 uint32_t max_members,
                                                 MemberId* next_member) const {
  for (const uint64_t id : waiting_) {
    const ChangeRequest change = Remaining(requests_.at(id).change, members);
    absl::StatusOr<std::vector<MemberId>> after =
        ApplyRequest(change, members, max_members, next_member);
    if (after.ok()) members = *std::move(after);
  }
  return members;
}

std::vector<uint64_t> RequestQueue::TakeNext() {
  const auto urgent = [&](uint64_t id) { return requests_.at(id).change.within.has_value(); };
  std::vector<uint64_t> taken = std::exchange(waiting_, {});
  if (std::none_of(taken.begin(), taken.end(), urgent)) return taken;
  const auto rest = std::stable_partition(taken.begin(), taken.end(), urgent);
  waiting_.assign(rest, taken.end());
  taken.erase(rest, taken.end());
  return taken;
}

std::string RequestQueue::Merge(uint64_t id, const WorldRecord& record, uint32_t max_members,
                                MergedRequests* merged) {
  Request& request = requests_.at(id);
  ChangeRequest change = request.change;
  // Members were lost since the request: a drain is fulfilled, a replacement is still due.
  const auto gone = [&](MemberId m) { return !record.world.SlotOf(m); };
  if (change.kind == RequestKind::kDrain && std::erase_if(change.members, gone) > 0 &&
      change.members.empty()) {
    Resolve({id}, RequestState::kDone, "the members have left");
    return "";
  }
  if (change.kind == RequestKind::kReplace && gone(change.members[0])) {
    change = {RequestKind::kResize, request.world_size, {}, {}, change.reason};
  }
  if (++request.attempts > kRequestAttempts) return "given up after several attempts";
  change = Remaining(std::move(change), merged->target);
  if (change.kind != RequestKind::kDrain || !change.members.empty()) {
    absl::StatusOr<std::vector<MemberId>> after =
        ApplyRequest(change, merged->target, max_members, &merged->next_member);
    if (!after.ok()) return std::string(after.status().message());
    merged->target = *std::move(after);
  }
  merged->requests.push_back(id);
  merged->only_rebuild &= request.change.kind == RequestKind::kRebuild;
  absl::StrAppend(&merged->what, merged->what.empty() ? "" : "; ", Describe(request.change));
  return "";
}

MergedRequests RequestQueue::TakeMerged(const WorldRecord& record, uint32_t max_members) {
  MergedRequests merged;
  std::vector<MemberId> world;
  for (const WorldMember& m : record.world.members) world.push_back(m.member);
  merged.target = world;
  merged.next_member = record.next_member;
  for (const uint64_t id : TakeNext()) {
    const std::string why = Merge(id, record, max_members, &merged);
    if (why.empty()) continue;
    Resolve({id}, RequestState::kFailed, why);
    merged.failures.push_back(absl::StrCat(Describe(change(id)), ": ", why));
  }
  // An earlier request of the same merge may add members that a later request removes. Their ids
  // are skipped.
  merged.target = OrderSlots(world, merged.target);
  return merged;
}

std::vector<uint64_t> RequestQueue::WithDeadline(const std::vector<uint64_t>& running) const {
  std::vector<uint64_t> due = waiting_;
  due.insert(due.end(), running.begin(), running.end());
  std::erase_if(due, [&](uint64_t id) { return !requests_.at(id).gone_by; });
  return due;
}

std::optional<Time> RequestQueue::EarliestDeadline(const std::vector<uint64_t>& ids) const {
  std::optional<Time> earliest;
  for (const uint64_t id : ids) {
    const std::optional<Time>& due = requests_.at(id).gone_by;
    if (due && (!earliest || *due < *earliest)) earliest = due;
  }
  return earliest;
}

std::vector<MemberId> RequestQueue::NotGone(uint64_t id, std::vector<MemberId> alive) const {
  std::erase_if(alive, [&](MemberId m) { return !Contains(change(id).members, m); });
  return alive;
}

}  // namespace rewire::elastic
