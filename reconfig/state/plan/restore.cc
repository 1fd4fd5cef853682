// Lists the copies of the state and the holdings of all members after a loss; see plan.h. Pure.
#include <algorithm>

#include "reconfig/state/plan/needs.h"
#include "reconfig/state/plan/plan.h"

namespace rewire::state {
namespace {

bool KeptWhole(const TensorShape& tensor) {
  return tensor.change == Change::kVolatile && tensor.division == Division::kReplicated;
}

bool ExistsOnce(const TensorShape& tensor) {
  return tensor.change != Change::kTransient && tensor.division == Division::kSharded;
}

}  // namespace

Box SnapshotPart(const TensorShape& tensor, uint32_t slots, uint32_t slot) {
  if (tensor.change == Change::kTransient) return {};
  if (KeptWhole(tensor)) return {0, tensor.elements};
  return ShardOf(tensor.elements, slots, slot);
}

bool CopiesPieces(std::span<const TensorShape> tensors) {
  return std::any_of(tensors.begin(), tensors.end(), ExistsOnce);
}

StateLayout LayoutOf(std::span<const TensorShape> tensors, uint32_t slots) {
  StateLayout layout;
  const auto any = [&](const auto& is) { return std::any_of(tensors.begin(), tensors.end(), is); };
  const auto constant = [](const TensorShape& t) {
    return t.change == Change::kConstant && t.division == Division::kReplicated;
  };
  layout.replicated = any(constant);
  layout.replicated_volatile = any(KeptWhole);
  const bool pieces = CopiesPieces(tensors);
  for (uint32_t slot = 0; slot < slots; ++slot) {
    const auto has = [&](const TensorShape& t) {
      return !ShardOf(t.elements, slots, slot).empty();
    };
    if (any([&](const TensorShape& t) { return ExistsOnce(t) && has(t); })) {
      layout.sharded.push_back(slot);
    }
    if (pieces && any([&](const TensorShape& t) { return constant(t) && has(t); })) {
      layout.pieces.push_back(slot);
    }
  }
  return layout;
}

absl::StatusOr<Plan> PlanRestore(std::span<const TensorShape> tensors, const World& from,
                                 const World& to, const RestoreSources& sources) {
  std::vector<Holding> holdings;
  const auto slots = static_cast<uint32_t>(from.members.size());
  const auto in = [](const std::vector<MemberId>& members, MemberId member) {
    return std::find(members.begin(), members.end(), member) != members.end();
  };
  std::vector<Need> needs = NeedsOf(tensors, to);
  std::erase_if(needs,
                [&](const Need& n) { return tensors[n.tensor].change == Change::kTransient; });
  const bool pieces = CopiesPieces(tensors);
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    const TensorShape& tensor = tensors[t];
    const bool constant = tensor.change == Change::kConstant;
    const bool copied = pieces || !constant;
    for (uint32_t slot = 0; slot < slots; ++slot) {
      const MemberId member = from.members[slot].member;
      const bool live = in(sources.live, member);
      const Box piece = SnapshotPart(tensor, slots, slot);
      if (live && constant) {
        holdings.push_back({member, t, PartOf(tensor, slots, slot), Origin::kLive});
      } else if (copied && (live || in(sources.own, member))) {
        holdings.push_back({member, t, piece, Origin::kOwnSnapshot});
      }
      const MemberId next = from.members[(slot + 1) % slots].member;
      const bool owner_has = live || in(sources.own, member);
      if (next != member && !owner_has && copied && !KeptWhole(tensor) && in(sources.buddy, next)) {
        holdings.push_back({next, t, piece, Origin::kBuddySnapshot});
      }
    }
  }
  return CheckedPlan(tensors, holdings, needs);
}

}  // namespace rewire::state
