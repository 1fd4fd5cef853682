// The giving side of a balancer: copies own experts' weights and tokens to helpers, and collects
// the results. Tracks which of the own weights are in the helpers' slots. The balancer's thread
// gives during a round, and the caller's thread does everything else. Thread-compatible; the
// balancer's mutex guards Giving. The context of Create() must be current in every call.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/exec/copy_queue.h"
#include "reconfig/moe/exec/joined_node.h"
#include "reconfig/moe/exec/round.h"
#include "reconfig/moe/exec/round_times.h"
#include "reconfig/moe/exec/slots.h"

namespace rewire::moe {

class Giving {
 public:
  // `node` and `times` must outlive this object.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<Giving>> Create(JoinedNode* node,
                                                                      RoundTimes* times);
  Giving(const Giving&) = delete;
  Giving& operator=(const Giving&) = delete;

  // Returns the bytes that were copied since the call before: those of the last round.
  [[nodiscard]] uint64_t TakeBytes();
  // Begins a round without moves.
  void Begin();
  void Add(const Stowed& move) { gives_.push_back({move}); }
  // Gives each expert whose helper is at the round and has not closed it. in_order: a helper that
  // is not at the round yet keeps later moves waiting. A budget of 0 copies declines all moves. An
  // error means that the balancer cannot continue.
  [[nodiscard]] absl::Status GiveWhatIsDue(const Round& round, bool in_order, Lateness* lateness);
  // Returns whether a move is neither given nor declined.
  [[nodiscard]] bool pending() const;
  // Ends the giving in this round: the owner keeps what is pending. Adds the moves that were given,
  // and those whose copies failed, to `moved`.
  void Close(Moved* moved);
  [[nodiscard]] const std::vector<Give>& gives() const { return gives_; }

  // Lets the caller's stream wait for the results of `given`, and copies the results to their rows
  // in `out`.
  [[nodiscard]] absl::Status TakeBack(const Round& round, std::span<const Stowed> given) const;
  // Returns the gradients of `given`, in the order of addition.
  [[nodiscard]] std::vector<Gradient> Gradients(std::span<const Stowed> given) const;

  // Returns whether weights of the layer that were sent forward were still there in the last
  // backward round; true before that.
  [[nodiscard]] bool Stayed(uint32_t layer);
  // Updates Stayed() from the moves of a backward round.
  void JudgeStay(uint32_t layer, std::span<const Stowed> given);

  [[nodiscard]] const CopyQueue& out() const { return *out_; }
  [[nodiscard]] CopyQueue* mutable_out() { return out_.get(); }
  // Totals of all rounds.
  [[nodiscard]] uint64_t given() const { return given_; }
  [[nodiscard]] uint64_t given_rows() const { return given_rows_; }

 private:
  Giving(JoinedNode* node, RoundTimes* times)
      : node_(*node), times_(*times), theirs_(node->group().ranks) {}
  [[nodiscard]] absl::Status Offer(const Round& round, Lateness* lateness, Give* give);
  [[nodiscard]] absl::Status AwaitRoom(uint32_t helper, uint64_t used);
  [[nodiscard]] absl::Status Copy(const Round& round, const Stowed& stowed);
  [[nodiscard]] absl::Status Drop(const Round& round, const Stowed& stowed,
                                  const absl::Status& why);

  JoinedNode& node_;
  RoundTimes& times_;
  std::unique_ptr<CopyQueue> out_;  // to helpers
  std::vector<Give> gives_;
  std::vector<LentSlots> theirs_;  // own weights in the slots of each rank
  std::vector<uint8_t> stay_;      // by layer
  bool begin_awaited_ = false;     // out_ waits for the beginning of the round
  uint64_t bytes_before_ = 0;      // copied before the round
  uint64_t given_ = 0;
  uint64_t given_rows_ = 0;
};

}  // namespace rewire::moe
