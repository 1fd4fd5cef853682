// The balancer's own two threads. "rewire-moe" plans and copies to helpers. "rewire-moe-look"
// watches the other processes and releases streams. open.cc starts and joins the threads.
#include <pthread.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/exec/balancer.h"

namespace rewire::moe {
namespace {

constexpr Duration kPatience = seconds(1);    // longest wait without a wake-up
constexpr Duration kLook = milliseconds(20);  // interval of checks on the other processes
constexpr Duration kLetGo = milliseconds(2);  // the interval after a process has died
// Each byte of all words after a loss: the word exceeds every round's number.
constexpr unsigned char kEveryRound = 0x3f;

}  // namespace

void Balancer::Run() {
  ::pthread_setname_np(::pthread_self(), "rewire-moe");
  (void)cuda_.CtxSetCurrent(context_);
  while (true) {
    const uint32_t seen = page_->wakeups();
    Time deadline;
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (!planned_) PlanRound();
      const Time now = Now();
      GiveWhatIsDue(now);
      deadline = now < in_order_until_ ? in_order_until_ : now + kPatience;
    }
    page_->WaitForWakeup(seen, deadline);
  }
}

void Balancer::PlanRound() {
  const uint64_t round = round_;
  if (!CheckLost().ok() || !page_->Read(round, &postings_)) return;
  mutex_.Unlock();  // Next() must not block on planning
  NodePlan plan = PlanNode(postings_, shape_);
  mutex_.Lock();
  // A process that closed before its plan was made keeps all its rows and receives none.
  if (round_ != round || stage_ != Stage::kBegun) return;
  in_order_until_ = Now() + options_.patience / kInOrder;
  nodes_speeds_ = plan.speeds;
  moved_.stay = plan.stay;
  for (const Stowed& stowed : plan.moves) {
    if (stowed.move.to == group_.rank) received_.push_back(stowed);
    if (stowed.from == group_.rank) gives_.push_back({stowed});
  }
  moved_.planned = std::move(plan.moves);
  planned_ = true;
  page_->Open(round);
}

void Balancer::GiveWhatIsDue(Time now) {
  if (!planned_ || stage_ != Stage::kBegun || !CheckLost().ok()) return;
  bool changed = false;
  for (Give& give : gives_) {
    if (give.state != Give::kPending) continue;
    Stowed& s = give.stowed;
    if (!page_->IsAt(s.move.to, round_)) {
      // The opening helper wakes this thread. Helpers compute in the order of the planned copies.
      if (now < in_order_until_) break;
      continue;
    }
    changed = true;
    give.state = Give::kKept;
    if (lateness_.copies() == 0) {
      page_->Decline(s.move.to, round_, s.slot);
      continue;
    }
    // read before the helper closes
    const uint64_t used = page_->LastUsed(s.move.to);
    const uint64_t taken = page_->LastTaken(s.move.to, s.slot);  // read before Take()
    if (!page_->Take(s.move.to, round_, s.slot)) continue;
    LentSlots& slots = theirs_[s.move.to];
    s.held = slots.Has(s.slot, WeightsOf(s), taken);
    slots.Clear(s.slot);
    if (absl::Status room = AwaitRoom(s.move.to, used); !room.ok()) {
      (void)Break(std::move(room));
      return;
    }
    const absl::Status copied = Copy(s);
    if (copied.ok()) {
      give.state = Give::kGiven;
      slots.Put(s.slot, WeightsOf(s), round_);
      ++counts_.given;
      counts_.given_rows += s.move.tokens;
      continue;
    }
    // The helper waits for the words; its result without data is not collected.
    moved_.dropped.push_back(s);
    lateness_.TurnOff();
    REWIRE_ERROR("moe: copy of an expert to rank %u: %s (no experts are moved from now on)",
                 s.move.to, std::string(copied.message()).c_str());
    const NodeMemory::Side helper = memory_->peer(s.move.to);
    absl::Status told = out_->Write(helper.weights_there(s.slot), round_);
    told.Update(out_->Write(helper.tokens_there(s.slot), round_));
    if (!told.ok()) (void)Break(std::move(told));
  }
  if (changed) page_->WakeOwn();
}

// These waits must precede any write to the helper's memory.
absl::Status Balancer::AwaitRoom(uint32_t helper, uint64_t used) {
  if (!begin_awaited_) REWIRE_RETURN_IF_ERROR(out_->After(begun_));
  begin_awaited_ = true;
  // The helper must have used the data of earlier rounds.
  return out_->AfterWord(memory_->own().used(helper), used);
}

Weights Balancer::WeightsOf(const Stowed& s) const {
  return {input_.layer, s.move.expert, input_.version};
}

absl::Status Balancer::Copy(const Stowed& s) {
  const NodeMemory::Side helper = memory_->peer(s.move.to);
  if (given_before_ == out_->bytes()) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(gives_begin_, out_->stream())));
  }
  const uint32_t expert = s.move.expert - group_.rank * shape_.experts;
  if (!s.held) {
    CUdeviceptr target = helper.weights(s.slot);
    for (const WeightPart& part : input_.weights[expert]) {
      out_->Add(target, part.data, part.bytes);
      target += part.bytes;
    }
    REWIRE_RETURN_IF_ERROR(out_->Send());
  }
  REWIRE_RETURN_IF_ERROR(out_->Write(helper.weights_there(s.slot), round_));
  const uint64_t row = (offsets_[expert] + s.move.first) * shape_.token_bytes;
  const uint64_t bytes = s.move.tokens * shape_.token_bytes;
  out_->Add(helper.tokens(s.row), input_.x + row, bytes);
  if (backward()) out_->Add(helper.errors(s.row), input_.errors + row, bytes);
  REWIRE_RETURN_IF_ERROR(out_->Send());
  REWIRE_RETURN_IF_ERROR(out_->Write(helper.tokens_there(s.slot), round_));
  return ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(gives_end_, out_->stream()));
}

absl::Status Balancer::Break(absl::Status status) {
  if (!status_.ok()) return status_;
  status_ = std::move(status);
  reported_.Set(Counts());
  REWIRE_ERROR("moe: %s", std::string(status_.message()).c_str());
  page_->Fail();
  return status_;
}

absl::Status Balancer::CheckLost() {
  const int lost = lost_;
  if (lost < 0 || !status_.ok()) return status_;
  return Break(absl::UnavailableError(
      absl::StrCat("rank ", lost, " of ", group_.name,
                   " is lost: results since the last check must not be used")));
}

void Balancer::SetLost(uint32_t rank) {
  int none = -1;
  if (!lost_.compare_exchange_strong(none, static_cast<int>(rank))) return;
  page_->Fail();
  page_->WakeOwn();
}

void Balancer::Look() {
  ::pthread_setname_np(::pthread_self(), "rewire-moe-look");
  (void)cuda_.CtxSetCurrent(context_);
  look_mutex_.Lock();
  while (!stop_looking_) {
    look_soon_.WaitUntil(&look_mutex_, Now() + (lost_ < 0 ? kLook : kLetGo));
    if (lost_ < 0) {
      if (const std::optional<uint32_t> lost = page_->FindLost()) SetLost(*lost);
    }
    if (lost_ < 0) continue;
    // Repeat the write: a live process may still overwrite a word with a smaller round.
    (void)cuda_.MemsetD8Async(memory_->words(), kEveryRound, NodeMemory::word_bytes(),
                              let_go_->stream());
  }
  look_mutex_.Unlock();
}

}  // namespace rewire::moe
