// What the balancer's own thread does: it plans, copies to helpers, and looks after the others.
// open.cc makes it.
#include <pthread.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/moe/exec/balancer.h"

namespace rewire::moe {
namespace {

constexpr Duration kLook = milliseconds(20);  // at the others
constexpr Duration kLetGo = milliseconds(2);  // once one has died
// Every word's bytes then: no round has this number, and all are before it.
constexpr unsigned char kEveryRound = 0x3f;

}  // namespace

void Balancer::Run() {
  ::pthread_setname_np(::pthread_self(), "rewire-moe");
  (void)cuda_.CtxSetCurrent(context_);
  Time look = Now() + kLook;
  while (true) {
    const uint32_t heard = page_->bell();
    {
      MutexLock lock(&mutex_);
      if (stop_) return;
      if (!planned_) PlanRound();
      GiveWhatIsDue();
      if (Now() >= look) {
        LookAtPeers();
        look = Now() + (status_.ok() ? kLook : kLetGo);
      }
    }
    page_->WaitForBell(heard, look);
  }
}

void Balancer::PlanRound() {
  if (!status_.ok() || !page_->Read(round_, &postings_)) return;
  Batch batch;
  batch.devices = group_.ranks;
  BalanceOptions options;
  Speeds speeds;
  for (uint32_t rank = 0; rank < group_.ranks; ++rank) {
    const Posting& posting = postings_[rank];
    batch.tokens.insert(batch.tokens.end(), posting.tokens.begin(), posting.tokens.end());
    batch.dynamic.insert(batch.dynamic.end(), posting.dynamic.begin(), posting.dynamic.end());
    batch.owner.insert(batch.owner.end(), shape_.experts, rank);
    options.budget.copies = std::min(options.budget.copies, posting.copies);
    speeds.row = std::max(speeds.row, posting.speeds.row);
    speeds.kib = std::max(speeds.kib, posting.speeds.kib);
  }
  options.gate_percent = options_.gate_percent;
  options.least = options_.least;
  for (const Stowed& stowed : ChooseMoves(batch, options, shape_, speeds)) {
    if (stowed.move.to == group_.rank) received_.push_back(stowed);
    if (stowed.from != group_.rank) continue;
    // Whoever closed before the plan was there keeps everything.
    gives_.push_back({stowed, stage_ == Stage::kBegun ? Give::kPending : Give::kKept});
  }
  planned_ = true;
  page_->RingOwn();
}

void Balancer::GiveWhatIsDue() {
  if (!planned_ || stage_ != Stage::kBegun || !status_.ok()) return;
  bool changed = false;
  for (Give& give : gives_) {
    if (give.state != Give::kPending) continue;
    const Stowed& s = give.stowed;
    if (!page_->HasBegun(s.move.to, round_)) continue;  // its bell will ring here
    changed = true;
    give.state = Give::kKept;
    if (lateness_.copies() == 0) {
      page_->Decline(s.move.to, round_, s.slot);
      continue;
    }
    const uint64_t used = page_->LastUsed(s.move.to);  // before it closes and uses this round's
    if (!page_->Take(s.move.to, round_, s.slot)) continue;
    const absl::Status copied = Copy(s, used);
    if (copied.ok()) {
      give.state = Give::kGiven;
      ++counts_.given;
      counts_.given_rows += s.move.tokens;
      continue;
    }
    // The helper waits for it; what it makes of nothing is not collected.
    moved_.dropped.push_back(s);
    lateness_.TurnOff();
    REWIRE_ERROR("moe: an expert cannot be copied to rank %u, so nothing is moved any more: %s",
                 s.move.to, std::string(copied.message()).c_str());
    const NodeMemory::Side helper = memory_->peer(s.move.to);
    (void)out_->Write(helper.weights_there(s.slot), round_);
    (void)out_->Write(helper.tokens_there(s.slot), round_);
  }
  if (changed) page_->RingOwn();
}

absl::Status Balancer::Copy(const Stowed& s, uint64_t used) {
  const NodeMemory::Side helper = memory_->peer(s.move.to);
  if (!begin_awaited_) REWIRE_RETURN_IF_ERROR(out_->After(begun_));
  begin_awaited_ = true;
  // What it was sent before must have been used.
  REWIRE_RETURN_IF_ERROR(out_->AfterWord(memory_->own().used(s.move.to), used));
  if (given_before_ == out_->bytes()) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(gives_begin_, out_->stream())));
  }
  const uint32_t expert = s.move.expert - group_.rank * shape_.experts;
  CUdeviceptr target = helper.weights(s.slot);
  for (const WeightPart& part : input_.weights[expert]) {
    out_->Add(target, part.data, part.bytes);
    target += part.bytes;
  }
  REWIRE_RETURN_IF_ERROR(out_->Send());
  REWIRE_RETURN_IF_ERROR(out_->Write(helper.weights_there(s.slot), round_));
  const uint64_t row = (offsets_[expert] + s.move.first) * shape_.token_bytes;
  const uint64_t bytes = s.move.tokens * shape_.token_bytes;
  out_->Add(helper.tokens(s.row), input_.x + row, bytes);
  if (backward()) out_->Add(helper.errors(s.row), input_.errors + row, bytes);
  REWIRE_RETURN_IF_ERROR(out_->Send());
  REWIRE_RETURN_IF_ERROR(out_->Write(helper.tokens_there(s.slot), round_));
  return ToStatus(cuda_, "cuEventRecord", cuda_.EventRecord(gives_end_, out_->stream()));
}

void Balancer::LookAtPeers() {
  if (status_.ok()) {
    const std::optional<uint32_t> lost = page_->FindLost();
    if (!lost) return;
    (void)Break(absl::UnavailableError(
        absl::StrCat("rank ", *lost, " of ", group_.name,
                     " is lost: what was balanced since the last check is not to be used")));
  }
  LetGo();
}

absl::Status Balancer::Break(absl::Status status) {
  if (!status_.ok()) return status_;
  status_ = std::move(status);
  REWIRE_ERROR("moe: %s", std::string(status_.message()).c_str());
  page_->Fail();
  return status_;
}

// Again and again: a live process may yet write what is less.
void Balancer::LetGo() {
  (void)cuda_.MemsetD8Async(memory_->words(), kEveryRound, NodeMemory::word_bytes(),
                            let_go_->stream());
}

}  // namespace rewire::moe
