// What a plan would have made of recorded micro-batches. Pure; for one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/moe/history.h"
#include "reconfig/moe/node_tokens.h"
#include "reconfig/moe/recording.h"

namespace rewire::moe {

// Without a re-layout experts stay where they are: all of them in order, as often as devices have
// room for all, and of these each device an equal part.
enum class ReplayPlan : uint8_t {
  kNone,
  kGreedy,    // FEPLB's, in each node
  kSplit,     // LLEP's, in each node
  kBalance,   // ours, in each node, with no more copies than the greedy makes
  kLaer,      // LAER-MoE's re-layout from the layer's last five micro-batches
  kRelayout,  // ours from these
  kComposed,  // and BalanceReplicas() on top of ours, with no more bytes than the greedy copies
};

inline constexpr std::array<std::string_view, 7> kReplayPlanNames = {
    "none", "greedy", "split", "balance", "laer", "relayout", "composed"};

struct ReplayOptions {
  RecordedShape shape;  // Check() holds for it
  ReplayPlan plan = ReplayPlan::kNone;
  uint32_t capacity = 0;  // experts of a device; 0: as few as all experts need
  uint32_t dynamic = 4;  // of them that the greedy and ours may move: those with most tokens before
  // Of what is copied; bytes is not used. FEPLB's: 72 MiB and 12 KiB.
  CopyBudget sizes{0, uint64_t{72} << 20, 12 << 10, 8};
};

struct Replayed {
  std::vector<uint64_t> before;  // tokens that each device computes where experts stay
  std::vector<uint64_t> after;   // by the plan
  Copied copied;
};

class Replay {
 public:
  // Fails where the devices have room for fewer experts than there are.
  [[nodiscard]] static absl::StatusOr<Replay> Create(const ReplayOptions& options);

  // The next of its layer. Fails on more tokens than plans can be made for.
  [[nodiscard]] absl::StatusOr<Replayed> Next(const Recorded& recorded);

 private:
  struct Layer {
    History last{5};
    std::vector<uint64_t> faded;  // tokens of each expert in all before, the later the more
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
