// The owner's side of the moves: copies own experts' weights and tokens to helpers, and collects
// the results. Tracks which of the own weights are in the helpers' slots. Used by Balancer: its
// thread adds a forward round's moves and calls GiveWhatIsDue(); the thread that uses the balancer
// makes the other calls. Thread-compatible; the balancer's mutex guards the object. The CUDA
// context that was current in Create() must be current in every call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/exec/copy_queue.h"
#include "reconfig/moe/exec/joined_node.h"
#include "reconfig/moe/exec/lent_slots.h"
#include "reconfig/moe/exec/round.h"
#include "reconfig/moe/exec/round_times.h"

namespace rewire::moe {

class Giving {
 public:
  // `node` and `times` must outlive this object.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Giving>> Create(JoinedNode* node,
                                                                      RoundTimes* times);
  Giving(const Giving&) = delete;
  Giving& operator=(const Giving&) = delete;

  // Returns the bytes that were copied since the previous call. With one call per round, these are
  // the bytes of the last round.
  [[nodiscard]] uint64_t TakeBytes();
  // Begins a round without moves.
  void Begin();
  // Adds a planned move to the round.
  void Add(const PlacedMove& move) { gives_.push_back({move}); }
  // Makes the pending moves whose helper has opened the round; a move whose helper has closed the
  // round already stays with the owner. in_order: stops at the first helper that has not opened the
  // round yet. If `lateness` permits 0 copies, declines the moves. After an error the balancer
  // cannot continue.
  [[nodiscard]] absl::Status GiveWhatIsDue(const Round& round, bool in_order, Lateness* lateness);
  // Returns whether at least one move of the round is still undecided.
  [[nodiscard]] bool pending() const;
  // Ends the moves of this round: the owner keeps the tokens of pending moves. Adds the completed
  // moves to moved->given, and the moves whose copies failed to moved->dropped.
  void Close(Moved* moved);
  [[nodiscard]] const std::vector<Give>& gives() const { return gives_; }

  // Makes the stream round.input.stream wait for the results of `given`, and then copy the results
  // to their rows in round.input.out.
  [[nodiscard]] absl::Status TakeBack(const Round& round, std::span<const PlacedMove> given) const;
  // Returns the gradients of `given`, in the order in which the caller must add them.
  [[nodiscard]] std::vector<Gradient> Gradients(std::span<const PlacedMove> given) const;

  // Returns whether more than half of the moves in the layer's last backward round found their
  // weights still in the helper's slot. Returns true before the first such round.
  [[nodiscard]] bool Stayed(uint32_t layer);
  // Updates Stayed() from the moves of a backward round.
  void JudgeStay(uint32_t layer, std::span<const PlacedMove> given);

  [[nodiscard]] const CopyQueue& out() const { return *out_; }
  [[nodiscard]] CopyQueue* mutable_out() { return out_.get(); }
  // Totals of all rounds.
  [[nodiscard]] uint64_t given() const { return given_; }
  [[nodiscard]] uint64_t given_rows() const { return given_rows_; }

 private:
  Giving(JoinedNode* node, RoundTimes* times)
      : node_(*node), times_(*times), lent_(node->group().ranks) {}
  // Takes the helper's slot, and copies the expert's weights and tokens to the helper.
  [[nodiscard]] absl::Status Offer(const Round& round, Lateness* lateness, Give* give);
  // Makes out_ wait for the beginning of the round, and until the helper has used the data of round
  // `used`.
  [[nodiscard]] absl::Status AwaitRoom(uint32_t helper, uint64_t used);
  [[nodiscard]] absl::Status Copy(const Round& round, const PlacedMove& placed);
  // Reports a failed copy, and releases the helper's stream, which waits for the copy.
  [[nodiscard]] absl::Status Drop(const Round& round, const PlacedMove& placed,
                                  const absl::Status& why);

  JoinedNode& node_;
  RoundTimes& times_;
  std::unique_ptr<CopyQueue> out_;  // to helpers
  std::vector<Give> gives_;
  std::vector<LentSlots> lent_;  // own weights in the slots of each rank
  std::vector<uint8_t> stay_;    // by layer: the result of Stayed()
  bool begin_awaited_ = false;   // out_ waits for the beginning of the round
  uint64_t bytes_before_ = 0;    // copied before the round
  uint64_t given_ = 0;
  uint64_t given_rows_ = 0;
};

}  // namespace rewire::moe
