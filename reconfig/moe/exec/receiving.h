// The receiving side of a balancer: others' experts in this device's slots, whose rows the caller
// computes, and the results that go back to the owners. Owned by the caller's thread, except that
// the balancer's thread adds expected moves. Thread-compatible; the balancer's mutex guards
// Receiving. The context of Create() must be current in every call and in the destructor.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/exec/copy_queue.h"
#include "reconfig/moe/exec/joined_node.h"
#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/exec/round.h"
#include "reconfig/moe/exec/round_times.h"

namespace rewire::moe {

class Receiving {
 public:
  // `node` and `times` must outlive this object.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Receiving>> Create(JoinedNode* node,
                                                                         RoundTimes* times);
  ~Receiving();
  Receiving(const Receiving&) = delete;
  Receiving& operator=(const Receiving&) = delete;

  // Returns the own slots as a plan for the layer needs them.
  [[nodiscard]] std::vector<Slot> Slots(uint32_t layer, uint64_t version) const {
    return mine_.Of(layer, version, node_.shape().slots);
  }
  // Begins a round in which `moves` are expected.
  void Begin(const std::vector<PlacedMove>& moves) { received_ = moves; }
  void Add(const PlacedMove& move) { received_.push_back(move); }
  // Returns whether the owners have taken or declined all slots of the expected moves.
  [[nodiscard]] bool Settled() const;
  // Closes this device's word. From here on received() is final: moves whose slots were not taken
  // are not received.
  void Close(const Round& round);
  [[nodiscard]] const std::vector<PlacedMove>& received() const { return received_; }

  // Lets the stream wait until the last round's results have been sent: new results overwrite them.
  [[nodiscard]] absl::Status AwaitReturned(CUstream stream) const;
  // Lets the stream wait for the data of a received move, and returns the segment to compute.
  // index: number in received().
  [[nodiscard]] absl::StatusOr<Segment> Receive(const Round& round, uint32_t index) const;
  // Sends the results of a received move to its owner, after the work on the caller's stream.
  [[nodiscard]] absl::Status SendBack(const Round& round, uint32_t index);
  // Tells the owners that the data of this round is not needed any more.
  [[nodiscard]] absl::Status End(const Round& round);

  [[nodiscard]] const CopyQueue& back() const { return *back_; }
  [[nodiscard]] CopyQueue* mutable_back() { return back_.get(); }
  // Returns the number of moves received in all rounds.
  [[nodiscard]] uint64_t total() const { return total_; }

 private:
  Receiving(JoinedNode* node, RoundTimes* times) : node_(*node), times_(*times) {}

  JoinedNode& node_;
  RoundTimes& times_;
  std::unique_ptr<CopyQueue> back_;  // to owners
  CUevent computed_ = nullptr;       // a received segment is computed, on the caller's stream
  CUevent returned_ = nullptr;       // results for others were sent, on back_
  std::vector<PlacedMove> received_;
  LentSlots mine_;  // what others have put into own slots
  uint64_t total_ = 0;
};

}  // namespace rewire::moe
