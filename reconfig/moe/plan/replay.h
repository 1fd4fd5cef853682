// Replays recorded micro-batches under a plan and reports the loads. No I/O; thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/plan/counts.h"
#include "reconfig/moe/plan/node_tokens.h"
#include "reconfig/moe/plan/recording.h"

namespace rewire::moe {

// Without a re-layout, experts keep fixed places. The list of all experts in order is repeated as
// often as the devices have room for all, and each device gets an equal part of this sequence.
enum class ReplayPlan : uint8_t {
  kNone,
  kGreedy,    // FEPLB's greedy, in each node
  kSplit,     // LLEP's splitting, in each node
  kBalance,   // BalanceMoves() in each node, with no more copies than the greedy makes
  kLaer,      // LAER-MoE's re-layout from the layer's last five micro-batches
  kRelayout,  // PlanRelayout() from the same micro-batches
  kComposed,  // kRelayout and then BalanceReplicas(), with no more bytes than the greedy copies
};

inline constexpr std::array<std::string_view, 7> kReplayPlanNames = {
    "none", "greedy", "split", "balance", "laer", "relayout", "composed"};

struct ReplayOptions {
  RecordedShape shape;  // has passed Check()
  ReplayPlan plan = ReplayPlan::kNone;
  uint32_t capacity = 0;  // experts of one device; 0: as few as all experts need
  // Movable experts of each device for the greedy and BalanceMoves(): those with most past tokens.
  uint32_t dynamic = 4;
  // Sizes of the copies; `bytes` is not used. FEPLB's: 72 MiB and 12 KiB.
  CopyBudget sizes{0, uint64_t{72} << 20, 12 << 10, 8};
};

struct Replayed {
  std::vector<uint64_t> before;  // tokens that each device computes if experts stay in place
  std::vector<uint64_t> after;   // the same with the plan
  Copied copied;
};

class Replay {
 public:
  // Fails if the devices have room for fewer experts than there are.
  [[nodiscard]] static absl::StatusOr<Replay> Create(const ReplayOptions& options);

  // Replays the layer's next micro-batch. Fails on more tokens than a plan can handle.
  [[nodiscard]] absl::StatusOr<Replayed> Next(const Recorded& recorded);

 private:
  struct Layer {
    History last{5};
    std::vector<uint64_t> faded;  // past tokens of each expert; recent ones weigh more
  };

  explicit Replay(const ReplayOptions& options) : options_(options) {}
  absl::StatusOr<std::vector<NodeTokens>> Nodes(const Counts& counts,
                                                const Placement& placement) const;
  TransferPlan PlanMoves(const NodeTokens& node, const Layer& layer, ReplayPlan plan) const;
  absl::StatusOr<Placement> PlanPlacement(const Layer& layer) const;

  ReplayOptions options_;
  Placement fixed_;
  std::map<uint32_t, Layer> layers_;
};

}  // namespace rewire::moe
