#include "reconfig/state/plan/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/state/plan/node_shares.h"
#include "reconfig/state/plan/overlap.h"

namespace rewire::state {
namespace {

// A chunk that several members could send is divided into parts of about this size.
constexpr uint64_t kGrainBytes = 8 << 20;
constexpr uint64_t kMaxGrains = 4096;
constexpr uint32_t kNowhere = UINT32_MAX;

// Returns the parts of a chunk, each of about `bytes` bytes, divided along the first dimension that
// has more than one element.
std::vector<Chunk> Grains(const Chunk& chunk, uint64_t element_bytes, uint64_t bytes) {
  size_t dim = 0;
  while (dim + 1 < chunk.dims && chunk.size(dim) == 1) ++dim;
  const uint64_t row = std::max<uint64_t>(1, chunk.elements() / chunk.size(dim) * element_bytes);
  const uint64_t rows = std::max(std::clamp<uint64_t>(bytes / row, 1, chunk.size(dim)),
                                 chunk.size(dim) / kMaxGrains + 1);
  std::vector<Chunk> grains;
  for (uint64_t at = chunk.begin[dim]; at < chunk.end[dim];) {
    grains.push_back(chunk);
    grains.back().begin[dim] = at;
    at += std::min(rows, chunk.end[dim] - at);
    grains.back().end[dim] = at;
  }
  return grains;
}

class Planner {
 public:
  Planner(const Sources& sources, const SeatedLayout& to,
          const std::function<void(const Move&)>& visit)
      : sources_(sources),
        from_(sources.from()),
        to_(to),
        visit_(visit),
        overlaps_(*from_.layout, *to.layout, OtherClasses(sources)),
        old_slot_(to.seats.size(), kNowhere),
        shares_(static_cast<uint32_t>(from_.seats.size())) {
    std::map<MemberId, uint32_t> slot_of;
    for (uint32_t slot = 0; slot < from_.seats.size(); ++slot) {
      slot_of[from_.seats[slot].member] = slot;
    }
    for (uint32_t slot = 0; slot < to.seats.size(); ++slot) {
      const auto known = slot_of.find(to.seats[slot].member);
      if (known != slot_of.end()) old_slot_[slot] = known->second;
    }
    // The nodes may have any numbers.
    for (const Seat& seat : from_.seats) node_.push_back(seat.node);
    std::sort(node_.begin(), node_.end());
    node_.erase(std::unique(node_.begin(), node_.end()), node_.end());
    for (const Seat& seat : from_.seats) {
      const auto at = std::lower_bound(node_.begin(), node_.end(), seat.node);
      number_.push_back(static_cast<uint32_t>(at - node_.begin()));
    }
    sent_.resize(from_.seats.size());
    sent_inside_.resize(from_.seats.size());
    received_.resize(to.seats.size());
  }

  // Counts what crosses between nodes, and divides it over the nodes that have it.
  void DivideCrossings() {
    // Tensors of one kind have the same slots on both sides.
    struct Kind {
      uint32_t tensor = 0;
      uint64_t element_bytes = 0;  // of all its tensors together
    };
    std::map<std::tuple<const std::vector<Overlap>*, uint32_t, uint32_t>, size_t> number_of;
    std::vector<Kind> kinds;  // in the order of their first tensors, as on every member
    const auto& tensors = from_.layout->tensors();
    for (uint32_t tensor = 0; tensor < tensors.size(); ++tensor) {
      if (!sources_.Has(tensor)) continue;
      const auto [kind, is_new] =
          number_of.try_emplace({&overlaps_.Of(tensor), from_.layout->StageOfLayer(tensor),
                                 to_.layout->StageOfLayer(tensor)},
                                kinds.size());
      if (is_new) kinds.push_back({tensor, 0});
      kinds[kind->second].element_bytes += tensors[tensor].element_bytes;
    }
    for (const Kind& kind : kinds) {
      ForEachLack(
          kind.tensor, [](const Overlap&, uint32_t, Origin) {},
          [&](const Lack& lack, const Slots& near) {
            if (!near.empty()) return;
            shares_.Add(NodesOf(lack.holders), lack.overlap.chunk.elements() * kind.element_bytes);
          });
    }
    shares_.Divide();
  }

  void PlanTensor(uint32_t tensor) {
    if (!sources_.Has(tensor)) return;
    const uint64_t element = from_.layout->tensors()[tensor].element_bytes;
    const auto stays = [&](const Overlap& overlap, uint32_t slot, Origin origin) {
      const MemberId member = to_.seats[slot].member;
      visit_({tensor, overlap.chunk, member, origin, member, false});
    };
    ForEachLack(tensor, stays, [&](const Lack& lack, const Slots& near) {
      const NodeShares::Nodes nodes = near.empty() ? NodesOf(lack.holders) : NodeShares::Nodes();
      const uint64_t bytes = lack.holders.size() > 1 ? kGrainBytes : UINT64_MAX;
      for (const Chunk& grain : Grains(lack.overlap.chunk, element, bytes)) {
        const Move move{tensor, grain, 0, Origin::kLive, 0, false};
        if (near.empty()) {
          Cross(move, grain.elements() * element, nodes, lack);
        } else {
          FanOut(move, grain.elements() * element, near, lack);
        }
      }
    });
  }

  [[nodiscard]] const absl::Status& status() const { return status_; }

 private:
  using Slots = std::vector<uint32_t>;
  // The slots of one node that need an overlap and lack it.
  struct Lack {
    const Overlap& overlap;
    const Slots& holders;  // in the order of nodes
    const Slots& slots;
  };

  // Returns the chunks of classes that are not those of the old layout.
  static OverlapCache::ChunksOf OtherClasses(const Sources& sources) {
    if (!sources.after_loss()) return {};
    return [&sources](size_t tensor) { return sources.ChunksOf(tensor); };
  }

  // Returns where the member of an old slot has an overlap; nullopt: nowhere.
  [[nodiscard]] std::optional<Origin> OriginIn(uint32_t slot, const Overlap& overlap) const {
    const Sources::Held& held = held_[slot];
    const auto has = [&overlap](uint32_t number) {
      return std::binary_search(overlap.from.begin(), overlap.from.end(), number);
    };
    if (has(held.own)) return held.origin;
    if (has(held.kept)) return Origin::kBuddySnapshot;
    return std::nullopt;
  }

  // Calls stays(overlap, slot, origin) for each slot that has the overlap, and lacks(lack, near)
  // for each node with slots that lack it. near: the holders on the node.
  template <typename Stays, typename Lacks>
  void ForEachLack(uint32_t tensor, const Stays& stays, const Lacks& lacks) {
    held_ = sources_.HeldOf(tensor);
    std::vector<Slots> by_class(sources_.Classes(tensor));
    for (uint32_t slot = 0; slot < held_.size(); ++slot) {
      for (const uint32_t number : {held_[slot].own, held_[slot].kept}) {
        if (number != kNoClass) by_class[number].push_back(slot);
      }
    }
    for (Slots& slots : by_class) SortByNode(&slots);
    const std::vector<Slots> needs =
        SlotsByClass(ClassesBySlot(*to_.layout, tensor), to_.layout->Classes(tensor));
    for (const Overlap& overlap : overlaps_.Of(tensor)) {
      std::map<uint32_t, Slots> lacking;  // by node
      for (const uint32_t number : overlap.to) {
        for (const uint32_t slot : needs[number]) {
          const uint32_t old = old_slot_[slot];
          const std::optional<Origin> own = old == kNowhere ? std::nullopt : OriginIn(old, overlap);
          if (own) {
            stays(overlap, slot, *own);
          } else {
            lacking[to_.seats[slot].node].push_back(slot);
          }
        }
      }
      if (lacking.empty()) continue;
      if (overlap.from.empty()) {
        if (status_.ok()) {
          status_ = absl::DataLossError(absl::StrCat("tensor ", to_.layout->tensors()[tensor].name,
                                                     " ", Text(overlap.chunk),
                                                     " no longer exists on any member"));
        }
        continue;
      }
      Slots all;
      if (overlap.from.size() > 1) {
        for (const uint32_t number : overlap.from) {
          all.insert(all.end(), by_class[number].begin(), by_class[number].end());
        }
        SortByNode(&all);
      }
      const Slots& holders = overlap.from.size() > 1 ? all : by_class[overlap.from.front()];
      for (const auto& [node, slots] : lacking) {
        lacks(Lack{overlap, holders, slots}, OnNode(holders, node));
      }
    }
  }

  // Returns the numbers of the holders' nodes, ascending.
  [[nodiscard]] NodeShares::Nodes NodesOf(const Slots& holders) const {
    NodeShares::Nodes nodes;
    for (const uint32_t slot : holders) {
      if (nodes.empty() || nodes.back() != number_[slot]) nodes.push_back(number_[slot]);
    }
    return nodes;
  }

  void SortByNode(Slots* slots) const {
    const auto before = [this](uint32_t a, uint32_t b) {
      return from_.seats[a].node < from_.seats[b].node;
    };
    if (!std::is_sorted(slots->begin(), slots->end(), before)) {
      std::stable_sort(slots->begin(), slots->end(), before);
    }
  }

  // holders: in the order of nodes.
  [[nodiscard]] Slots OnNode(const Slots& holders, uint32_t node) const {
    const auto first =
        std::lower_bound(holders.begin(), holders.end(), node,
                         [this](uint32_t slot, uint32_t n) { return from_.seats[slot].node < n; });
    auto last = first;
    while (last != holders.end() && from_.seats[*last].node == node) ++last;
    return {first, last};
  }

  // Plans the moves to members whose own node has the chunk.
  void FanOut(Move move, uint64_t bytes, const Slots& near, const Lack& lack) {
    for (const uint32_t slot : lack.slots) {
      const uint32_t source = *std::min_element(
          near.begin(), near.end(),
          [this](uint32_t a, uint32_t b) { return sent_inside_[a] < sent_inside_[b]; });
      sent_inside_[source] += bytes;
      move.source = from_.seats[source].member;
      move.origin = *OriginIn(source, lack.overlap);
      move.target = to_.seats[slot].member;
      visit_(move);
    }
  }

  // Plans the move from another node to one member, and from it to the others of its node.
  void Cross(Move move, uint64_t bytes, const NodeShares::Nodes& nodes, const Lack& lack) {
    const Slots& slots = lack.slots;
    const Slots senders = OnNode(lack.holders, node_[shares_.Next(nodes, bytes)]);
    const uint32_t source =
        *std::min_element(senders.begin(), senders.end(),
                          [this](uint32_t a, uint32_t b) { return sent_[a] < sent_[b]; });
    const uint32_t first =
        *std::min_element(slots.begin(), slots.end(),
                          [this](uint32_t a, uint32_t b) { return received_[a] < received_[b]; });
    sent_[source] += bytes;
    received_[first] += bytes;
    move.source = from_.seats[source].member;
    move.origin = *OriginIn(source, lack.overlap);
    move.target = to_.seats[first].member;
    visit_(move);
    move.source = move.target;
    move.origin = Origin::kLive;
    move.relayed = true;
    for (const uint32_t slot : slots) {
      if (slot == first) continue;
      move.target = to_.seats[slot].member;
      visit_(move);
    }
  }

  const Sources& sources_;
  const SeatedLayout& from_;
  const SeatedLayout& to_;
  const std::function<void(const Move&)>& visit_;
  OverlapCache overlaps_;
  Slots old_slot_;                     // by slot of `to`: the member's slot of `from`
  std::vector<uint64_t> sent_;         // to other nodes, by slot of `from`
  std::vector<uint64_t> sent_inside_;  // the node, by slot of `from`
  std::vector<uint64_t> received_;     // from other nodes, by slot of `to`
  Slots number_;  // of the node, by slot of `from`; they ascend as the nodes do
  Slots node_;    // by number
  NodeShares shares_;
  std::vector<Sources::Held> held_;  // of the tensor that is planned now, by slot of `from`
  absl::Status status_;
};

}  // namespace

absl::Status CheckSameTensors(const SeatedLayout& from, const SeatedLayout& to) {
  for (const SeatedLayout* side : {&from, &to}) {
    const char* const name = side == &from ? "from" : "to";
    if (side->seats.size() != side->layout->slots()) {
      return absl::InvalidArgumentError(absl::StrCat("plan: ", name, ": ", side->seats.size(),
                                                     " members: must be the ",
                                                     side->layout->slots(), " slots"));
    }
    std::set<MemberId> members;
    for (const Seat& seat : side->seats) {
      if (members.insert(seat.member).second) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("plan: ", name, ": member ", seat.member, " has two slots: must have one"));
    }
  }
  std::map<MemberId, uint32_t> node;
  for (const Seat& seat : from.seats) node[seat.member] = seat.node;
  for (const Seat& seat : to.seats) {
    const auto known = node.find(seat.member);
    if (known == node.end() || known->second == seat.node) continue;
    return absl::InvalidArgumentError(absl::StrCat("plan: to: member ", seat.member, " is on node ",
                                                   seat.node, ": must be on node ", known->second,
                                                   ", as in from"));
  }
  const std::vector<LogicalTensor>& before = from.layout->tensors();
  const std::vector<LogicalTensor>& after = to.layout->tensors();
  if (before.size() != after.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "plan: to: ", after.size(), " tensors: must be the ", before.size(), " of from"));
  }
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].name != after[i].name) {
      return absl::InvalidArgumentError(absl::StrCat("plan: to: tensor number ", i, " is ",
                                                     after[i].name, ": must be ", before[i].name));
    }
    if (before[i].shape == after[i].shape && before[i].element_bytes == after[i].element_bytes) {
      continue;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("plan: tensor ", before[i].name, ": its shape or element_bytes differs"));
  }
  return absl::OkStatus();
}

absl::Status PlanMoves(const Sources& sources, const SeatedLayout& to,
                       const std::function<void(const Move&)>& visit) {
  Planner planner(sources, to, visit);
  planner.DivideCrossings();
  const size_t tensors = to.layout->tensors().size();
  for (uint32_t tensor = 0; tensor < tensors && planner.status().ok(); ++tensor) {
    planner.PlanTensor(tensor);
  }
  return planner.status();
}

}  // namespace rewire::state
