#include "reconfig/state/plan/layout_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/state/plan/overlap.h"

namespace rewire::state {
namespace {

// A chunk that several members could send is divided into parts of about this size.
constexpr uint64_t kGrainBytes = 8 << 20;
constexpr uint64_t kMaxGrains = 4096;
// The source is the least loaded of 16 members, in turn: with thousands, asking all takes too long.
constexpr size_t kAsked = 16;
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

// The layout that a tensor's division depends on, apart from the stage of its layer. Tensors with
// equal keys have equal overlaps.
auto KeyOf(const ParallelLayout& layout, size_t tensor) {
  const LogicalTensor& t = layout.tensors()[tensor];
  const bool in_buffer = layout.zero().stage > 0 && layout.zero().way == ZeroWay::kBuffer;
  return std::tuple(t.shape, t.role, t.split.dim, t.split.sections, t.split.unit, t.split.padded,
                    t.experts, t.stages, in_buffer ? tensor + 1 : 0);
}

// The slots of a layout that have something of a tensor, by class.
std::vector<std::vector<uint32_t>> SlotsByClass(const ParallelLayout& layout, size_t tensor,
                                                std::vector<uint32_t>* class_of) {
  std::vector<std::vector<uint32_t>> slots(layout.Classes(tensor));
  class_of->assign(layout.slots(), kNowhere);
  for (uint32_t slot = 0; slot < layout.slots(); ++slot) {
    const std::optional<uint32_t> number = layout.ClassOf(tensor, slot);
    if (!number) continue;
    (*class_of)[slot] = *number;
    slots[*number].push_back(slot);
  }
  return slots;
}

class Planner {
 public:
  Planner(const SeatedLayout& from, const SeatedLayout& to,
          const std::function<void(const Move&)>& visit)
      : from_(from), to_(to), visit_(visit), old_slot_(to.seats.size(), kNowhere) {
    std::map<MemberId, uint32_t> slot_of;
    for (uint32_t slot = 0; slot < from.seats.size(); ++slot) {
      slot_of[from.seats[slot].member] = slot;
    }
    for (uint32_t slot = 0; slot < to.seats.size(); ++slot) {
      const auto known = slot_of.find(to.seats[slot].member);
      if (known != slot_of.end()) old_slot_[slot] = known->second;
    }
    // The nodes may have any numbers.
    std::map<uint32_t, uint32_t> number_of;
    for (const Seat& seat : from.seats) {
      const auto number = static_cast<uint32_t>(number_of.size());
      number_.push_back(number_of.emplace(seat.node, number).first->second);
    }
    node_sent_.resize(number_of.size());
    sent_.resize(from.seats.size());
    sent_inside_.resize(from.seats.size());
    received_.resize(to.seats.size());
  }

  void PlanTensor(uint32_t tensor) {
    const auto key = std::pair(KeyOf(*from_.layout, tensor), KeyOf(*to_.layout, tensor));
    auto known = overlaps_.find(key);
    if (known == overlaps_.end()) {
      known = overlaps_.emplace(key, OverlapsOf(*from_.layout, *to_.layout, tensor)).first;
    }
    holders_ = SlotsByClass(*from_.layout, tensor, &class_of_);
    for (Slots& slots : holders_) SortByNode(&slots);
    std::vector<uint32_t> unused;
    const std::vector<std::vector<uint32_t>> needs = SlotsByClass(*to_.layout, tensor, &unused);
    for (const Overlap& overlap : known->second) {
      Slots slots;
      for (const uint32_t number : overlap.to) {
        slots.insert(slots.end(), needs[number].begin(), needs[number].end());
      }
      PlanOverlap(tensor, overlap, slots);
    }
  }

 private:
  using Slots = std::vector<uint32_t>;

  void PlanOverlap(uint32_t tensor, const Overlap& overlap, const Slots& needs) {
    std::map<uint32_t, Slots> lacking;  // by node
    for (const uint32_t slot : needs) {
      const uint32_t old = old_slot_[slot];
      const bool has = old != kNowhere &&
                       std::binary_search(overlap.from.begin(), overlap.from.end(), class_of_[old]);
      const MemberId member = to_.seats[slot].member;
      if (has) {
        visit_({tensor, overlap.chunk, member, member, false});
      } else {
        lacking[to_.seats[slot].node].push_back(slot);
      }
    }
    if (lacking.empty()) return;
    Slots all;
    if (overlap.from.size() > 1) {
      for (const uint32_t number : overlap.from) {
        all.insert(all.end(), holders_[number].begin(), holders_[number].end());
      }
      SortByNode(&all);
    }
    const Slots& holders = overlap.from.size() > 1 ? all : holders_[overlap.from.front()];
    const uint64_t element = from_.layout->tensors()[tensor].element_bytes;
    const bool choice = holders.size() > 1;
    for (const auto& [node, slots] : lacking) {
      const Slots near = OnNode(holders, node);
      for (const Chunk& grain : Grains(overlap.chunk, element, choice ? kGrainBytes : UINT64_MAX)) {
        const uint64_t bytes = grain.elements() * element;
        if (near.empty()) {
          Cross({tensor, grain, 0, 0, false}, bytes, holders, slots);
        } else {
          FanOut({tensor, grain, 0, 0, false}, bytes, near, slots);
        }
      }
    }
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
  void FanOut(Move move, uint64_t bytes, const Slots& near, const Slots& slots) {
    for (const uint32_t slot : slots) {
      const uint32_t source = *std::min_element(
          near.begin(), near.end(),
          [this](uint32_t a, uint32_t b) { return sent_inside_[a] < sent_inside_[b]; });
      sent_inside_[source] += bytes;
      move.source = from_.seats[source].member;
      move.target = to_.seats[slot].member;
      visit_(move);
    }
  }

  // Plans the move from another node to one member, and from it to the others of its node.
  void Cross(Move move, uint64_t bytes, const Slots& holders, const Slots& slots) {
    const uint32_t source = LeastLoaded(holders);
    const uint32_t first =
        *std::min_element(slots.begin(), slots.end(),
                          [this](uint32_t a, uint32_t b) { return received_[a] < received_[b]; });
    sent_[source] += bytes;
    node_sent_[number_[source]] += bytes;
    received_[first] += bytes;
    move.source = from_.seats[source].member;
    move.target = to_.seats[first].member;
    visit_(move);
    move.source = move.target;
    move.relayed = true;
    for (const uint32_t slot : slots) {
      if (slot == first) continue;
      move.target = to_.seats[slot].member;
      visit_(move);
    }
  }

  uint32_t LeastLoaded(const Slots& holders) {
    const auto load = [this](uint32_t slot) {
      return std::tuple(node_sent_[number_[slot]], sent_[slot], slot);
    };
    const size_t asked = std::min(holders.size(), kAsked);
    uint32_t best = holders[turn_ % holders.size()];
    for (size_t i = 1; i < asked; ++i) {
      const uint32_t other = holders[(turn_ + i) % holders.size()];
      if (load(other) < load(best)) best = other;
    }
    turn_ += asked;
    return best;
  }

  const SeatedLayout& from_;
  const SeatedLayout& to_;
  const std::function<void(const Move&)>& visit_;
  Slots old_slot_;                     // by slot of `to`: the member's slot of `from`
  std::vector<uint64_t> sent_;         // to other nodes, by slot of `from`
  std::vector<uint64_t> sent_inside_;  // the node, by slot of `from`
  std::vector<uint64_t> received_;     // from other nodes, by slot of `to`
  Slots number_;                       // of the node, by slot of `from`
  std::vector<uint64_t> node_sent_;
  size_t turn_ = 0;
  // For the tensor that is planned now.
  std::vector<Slots> holders_;
  std::vector<uint32_t> class_of_;  // by slot of `from`
  using Key = decltype(KeyOf(std::declval<const ParallelLayout&>(), 0));
  std::map<std::pair<Key, Key>, std::vector<Overlap>> overlaps_;
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

void PlanMoves(const SeatedLayout& from, const SeatedLayout& to,
               const std::function<void(const Move&)>& visit) {
  Planner planner(from, to, visit);
  for (uint32_t tensor = 0; tensor < from.layout->tensors().size(); ++tensor)
    planner.PlanTensor(tensor);
}

}  // namespace rewire::state
