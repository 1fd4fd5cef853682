#include "reconfig/moe/exec/receiving.h"

#include "reconfig/base/status_macros.h"

namespace rewire::moe {

absl::StatusOr<std::unique_ptr<Receiving>> Receiving::Create(JoinedNode* node, RoundTimes* times) {
  const CudaDriver& cuda = node->cuda();
  std::unique_ptr<Receiving> receiving(new Receiving(node, times));
  REWIRE_ASSIGN_OR_RETURN(receiving->back_, CopyQueue::Make(cuda));
  for (CUevent* event : {&receiving->computed_, &receiving->returned_}) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda, "cuEventCreate", cuda.EventCreate(event, CU_EVENT_DISABLE_TIMING)));
  }
  return receiving;
}

Receiving::~Receiving() {
  for (const CUevent event : {computed_, returned_}) {
    if (event != nullptr) (void)node_.cuda().EventDestroy(event);
  }
}

bool Receiving::Settled() const {
  uint32_t expected = 0;
  for (const PlacedMove& s : received_) expected |= 1U << s.slot;
  return (node_.page().Settled() & expected) == expected;
}

void Receiving::Close(const Round& round) {
  const uint32_t taken = node_.page().Close(round.key);
  std::erase_if(received_, [&](const PlacedMove& s) { return (taken >> s.slot & 1) == 0; });
  for (const PlacedMove& s : received_)
    mine_.Put(s.slot, round.WeightsOf(s.move.expert), round.key);
  total_ += received_.size();
}

absl::Status Receiving::AwaitReturned(CUstream stream) const {
  const CudaDriver& cuda = node_.cuda();
  return ToStatus(cuda, "cuStreamWaitEvent", cuda.StreamWaitEvent(stream, returned_, 0));
}

absl::StatusOr<Segment> Receiving::Receive(const Round& round, uint32_t index) const {
  const CudaDriver& cuda = node_.cuda();
  const PlacedMove& s = received_[index];
  const CUstream stream = round.input.stream;
  const NodeMemory& memory = node_.memory();
  const NodeMemory::Side own = memory.own();
  REWIRE_RETURN_IF_ERROR(times_.BeginWait(index, stream));
  for (const CUdeviceptr word : {own.weights_there(s.slot), own.tokens_there(s.slot)}) {
    REWIRE_RETURN_IF_ERROR(
        ToStatus(cuda, "cuStreamWaitValue64",
                 cuda.StreamWaitValue64(stream, word, round.key, CU_STREAM_WAIT_VALUE_GEQ)));
  }
  REWIRE_RETURN_IF_ERROR(times_.EndWait(index, stream));
  Segment segment;
  segment.expert = s.move.expert;
  segment.first = s.move.first;
  segment.rows = s.move.tokens;
  segment.weights = own.weights(s.slot);
  segment.x = own.tokens(s.row);
  segment.errors = round.backward() ? own.errors(s.row) : 0;
  segment.out = memory.results(s.row);
  segment.grad = round.backward() ? memory.grads(s.slot) : 0;
  return segment;
}

absl::Status Receiving::SendBack(const Round& round, uint32_t index) {
  const CudaDriver& cuda = node_.cuda();
  const PlacedMove& s = received_[index];
  REWIRE_RETURN_IF_ERROR(
      ToStatus(cuda, "cuEventRecord", cuda.EventRecord(computed_, round.input.stream)));
  REWIRE_RETURN_IF_ERROR(back_->After(computed_));
  const NodeMemory& memory = node_.memory();
  const NodeMemory::Side owner = memory.peer(s.from);
  back_->Add(owner.back(s.back_row), memory.results(s.row),
             s.move.tokens * node_.shape().token_bytes);
  if (round.backward()) {
    back_->Add(owner.back_grads(s.back_slot), memory.grads(s.slot), node_.shape().grad_bytes);
  }
  REWIRE_RETURN_IF_ERROR(back_->Send());
  return back_->Write(owner.back_there(s.back_slot), round.key);
}

absl::Status Receiving::End(const Round& round) {
  if (received_.empty()) return absl::OkStatus();
  const NodeGroup& group = node_.group();
  for (uint32_t rank = 0; rank < group.ranks; ++rank) {
    if (rank == group.rank) continue;
    REWIRE_RETURN_IF_ERROR(back_->Write(node_.memory().peer(rank).used(group.rank), round.key));
  }
  return ToStatus(node_.cuda(), "cuEventRecord",
                  node_.cuda().EventRecord(returned_, back_->stream()));
}

}  // namespace rewire::moe
