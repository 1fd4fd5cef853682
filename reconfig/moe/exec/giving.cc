#include "reconfig/moe/exec/giving.h"

#include <algorithm>
#include <string>
#include <utility>

#include "reconfig/base/log.h"
#include "reconfig/base/status_macros.h"

namespace rewire::moe {

absl::StatusOr<std::unique_ptr<Giving>> Giving::Create(JoinedNode* node, RoundTimes* times) {
  std::unique_ptr<Giving> giving(new Giving(node, times));
  REWIRE_ASSIGN_OR_RETURN(giving->out_, CopyQueue::Make(node->cuda()));
  return giving;
}

uint64_t Giving::TakeBytes() {
  const uint64_t before = std::exchange(bytes_before_, out_->bytes());
  return bytes_before_ - before;
}

void Giving::Begin() {
  gives_.clear();
  begin_awaited_ = false;
}

bool Giving::pending() const {
  return std::any_of(gives_.begin(), gives_.end(),
                     [](const Give& give) { return give.state == Give::kPending; });
}

absl::Status Giving::GiveWhatIsDue(const Round& round, bool in_order, Lateness* lateness) {
  bool changed = false;
  for (Give& give : gives_) {
    if (give.state != Give::kPending) continue;
    if (!node_.page().IsAt(give.placed.move.to, round.key)) {
      // The opening helper wakes this thread. Helpers compute in the order of the planned copies.
      if (in_order) break;
      continue;
    }
    changed = true;
    REWIRE_RETURN_IF_ERROR(Offer(round, lateness, &give));
  }
  if (changed) node_.page().WakeOwn();
  return absl::OkStatus();
}

// Takes the helper's slot, and copies the expert there.
absl::Status Giving::Offer(const Round& round, Lateness* lateness, Give* give) {
  PlacedMove& s = give->placed;
  NodePage& page = node_.page();
  give->state = Give::kKept;
  if (lateness->copies() == 0) {
    page.Decline(s.move.to, round.key, s.slot);
    return absl::OkStatus();
  }
  const uint64_t used = page.LastUsed(s.move.to);            // read before the helper closes
  const uint64_t taken = page.LastTaken(s.move.to, s.slot);  // read before Take()
  if (!page.Take(s.move.to, round.key, s.slot)) return absl::OkStatus();
  LentSlots& slots = lent_[s.move.to];
  const Weights weights = round.WeightsOf(s.move.expert);
  s.held = slots.Has(s.slot, weights, taken);
  slots.Clear(s.slot);
  REWIRE_RETURN_IF_ERROR(AwaitRoom(s.move.to, used));
  if (const absl::Status copied = Copy(round, s); !copied.ok()) {
    give->state = Give::kDropped;
    lateness->TurnOff();
    return Drop(round, s, copied);
  }
  give->state = Give::kGiven;
  slots.Put(s.slot, weights, round.key);
  ++given_;
  given_rows_ += s.move.tokens;
  return absl::OkStatus();
}

// These waits must precede any write to the helper's memory.
absl::Status Giving::AwaitRoom(uint32_t helper, uint64_t used) {
  if (!begin_awaited_) REWIRE_RETURN_IF_ERROR(out_->After(times_.begun()));
  begin_awaited_ = true;
  // The helper must have used the data of earlier rounds.
  return out_->AfterWord(node_.memory().own().used(helper), used);
}

absl::Status Giving::Copy(const Round& round, const PlacedMove& s) {
  const NodeMemory::Side helper = node_.memory().peer(s.move.to);
  if (bytes_before_ == out_->bytes()) REWIRE_RETURN_IF_ERROR(times_.BeginGives(out_->stream()));
  const uint32_t expert = node_.OwnNumber(s.move.expert);
  if (!s.held) {
    CUdeviceptr target = helper.weights(s.slot);
    for (const WeightPart& part : round.input.weights[expert]) {
      out_->Add(target, part.data, part.bytes);
      target += part.bytes;
    }
    REWIRE_RETURN_IF_ERROR(out_->Send());
  }
  REWIRE_RETURN_IF_ERROR(out_->Write(helper.weights_there(s.slot), round.key));
  const uint64_t token_bytes = node_.shape().token_bytes;
  const uint64_t row = (round.offsets[expert] + s.move.first) * token_bytes;
  const uint64_t bytes = s.move.tokens * token_bytes;
  out_->Add(helper.tokens(s.row), round.input.x + row, bytes);
  if (round.backward()) out_->Add(helper.errors(s.row), round.input.errors + row, bytes);
  REWIRE_RETURN_IF_ERROR(out_->Send());
  REWIRE_RETURN_IF_ERROR(out_->Write(helper.tokens_there(s.slot), round.key));
  return times_.EndGives(out_->stream());
}

// The helper waits for the words; its result without data is not collected.
absl::Status Giving::Drop(const Round& round, const PlacedMove& s, const absl::Status& why) {
  REWIRE_ERROR("moe: copy of an expert to rank %u: %s (no experts are moved from now on)",
               s.move.to, std::string(why.message()).c_str());
  const NodeMemory::Side helper = node_.memory().peer(s.move.to);
  absl::Status told = out_->Write(helper.weights_there(s.slot), round.key);
  told.Update(out_->Write(helper.tokens_there(s.slot), round.key));
  return told;
}

void Giving::Close(Moved* moved) {
  for (Give& give : gives_) {
    if (give.state == Give::kPending) give.state = Give::kKept;
    if (give.state == Give::kGiven) moved->given.push_back(give.placed);
    if (give.state == Give::kDropped) moved->dropped.push_back(give.placed);
  }
}

absl::Status Giving::TakeBack(const Round& round, std::span<const PlacedMove> given) const {
  const CudaDriver& cuda = node_.cuda();
  const CUstream stream = round.input.stream;
  const NodeMemory::Side own = node_.memory().own();
  REWIRE_RETURN_IF_ERROR(times_.BeginCollect(stream));
  for (const PlacedMove& s : given) {
    REWIRE_RETURN_IF_ERROR(ToStatus(cuda, "cuStreamWaitValue64",
                                    cuda.StreamWaitValue64(stream, own.back_there(s.back_slot),
                                                           round.key, CU_STREAM_WAIT_VALUE_GEQ)));
  }
  REWIRE_RETURN_IF_ERROR(times_.EndCollect(stream));
  const uint64_t token_bytes = node_.shape().token_bytes;
  for (const PlacedMove& s : given) {
    const uint64_t row = round.offsets[node_.OwnNumber(s.move.expert)] + s.move.first;
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda, "cuMemcpyDtoDAsync",
                 cuda.MemcpyDtoDAsync(round.input.out + row * token_bytes, own.back(s.back_row),
                                      s.move.tokens * token_bytes, stream)));
  }
  return absl::OkStatus();
}

std::vector<Gradient> Giving::Gradients(std::span<const PlacedMove> given) const {
  std::vector<Gradient> gradients;
  for (const PlacedMove& s : given) {
    gradients.push_back(
        {node_.OwnNumber(s.move.expert), s.move.to, node_.memory().own().back_grads(s.back_slot)});
  }
  std::sort(gradients.begin(), gradients.end(), [](const Gradient& a, const Gradient& b) {
    return std::pair(a.expert, a.helper) < std::pair(b.expert, b.helper);
  });
  return gradients;
}

bool Giving::Stayed(uint32_t layer) {
  if (stay_.size() <= layer) stay_.resize(layer + 1, 1);
  return stay_[layer] != 0;
}

void Giving::JudgeStay(uint32_t layer, std::span<const PlacedMove> given) {
  if (given.empty()) return;
  const auto held =
      std::count_if(given.begin(), given.end(), [](const PlacedMove& s) { return s.held; });
  if (stay_.size() <= layer) stay_.resize(layer + 1, 1);
  stay_[layer] = static_cast<size_t>(held) * 2 > given.size() ? 1 : 0;
}

}  // namespace rewire::moe
