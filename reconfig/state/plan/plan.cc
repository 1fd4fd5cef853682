// Lists needs and holdings, assigns sources and checks the result; see plan.h. Pure.
#include "reconfig/state/plan/plan.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "reconfig/base/bytes.h"
#include "reconfig/base/hash.h"

namespace rewire::state {
namespace {

// A sender is chosen for at most this number of bytes at a time, so that a large tensor spreads
// over all its holders.
constexpr uint64_t kGrainBytes = 8 << 20;

std::string Elements(const TensorShape& tensor, const Box& box) {
  return absl::StrCat("tensor ", tensor.name, " elements [", box.begin, ", ", box.end, ")");
}

// The holdings of one tensor.
struct Shelf {
  std::vector<Holding> all;
  std::map<MemberId, std::vector<Holding>> of;  // the same, by member
};

// Returns the holding of `member` that has element `at`. If there is none, returns null and lowers
// *next to the beginning of the member's next holding.
const Holding* SelfAt(const Shelf& shelf, MemberId member, uint64_t at, uint64_t* next) {
  const auto own = shelf.of.find(member);
  if (own == shelf.of.end()) return nullptr;
  for (const Holding& h : own->second) {
    if (h.box.begin <= at && at < h.box.end) return &h;
    if (h.box.begin > at) *next = std::min(*next, h.box.begin);
  }
  return nullptr;
}

// Returns whether each element of the tensor is on only one member. False for a transient tensor,
// which needs no restore.
bool ExistsOnce(const TensorShape& tensor) {
  return tensor.change != Change::kTransient && tensor.division == Division::kSharded;
}

// Returns the part of every tensor that each member of `to` must have.
std::vector<Need> NeedsOf(std::span<const TensorShape> tensors, const World& to) {
  std::vector<Need> needs;
  const auto slots = static_cast<uint32_t>(to.members.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      needs.push_back({to.members[slot].member, t, PartOf(tensors[t], slots, slot)});
    }
  }
  return needs;
}

absl::StatusOr<Plan> CheckedPlan(std::span<const TensorShape> tensors,
                                 const std::vector<Holding>& holdings,
                                 const std::vector<Need>& needs) {
  auto plan = AssignSources(tensors, holdings, needs);
  if (!plan.ok()) return plan;
  if (absl::Status status = CheckPlan(tensors, holdings, needs, *plan); !status.ok()) return status;
  return plan;
}

}  // namespace

uint64_t Plan::BytesOnWire(std::span<const TensorShape> tensors) const {
  uint64_t bytes = 0;
  for (const BoxCopy& c : copies) {
    if (!c.local()) bytes += c.box.size() * tensors[c.tensor].element_bytes;
  }
  return bytes;
}

absl::StatusOr<Plan> AssignSources(std::span<const TensorShape> tensors,
                                   std::span<const Holding> holdings, std::span<const Need> needs) {
  std::vector<Shelf> shelves(tensors.size());
  std::map<MemberId, uint64_t> load;
  for (const Holding& h : holdings) {
    if (h.tensor >= tensors.size() || h.box.empty()) continue;
    shelves[h.tensor].all.push_back(h);
    shelves[h.tensor].of[h.member].push_back(h);
  }
  Plan plan;
  for (const Need& need : needs) {
    if (need.tensor >= tensors.size())
      return absl::InvalidArgumentError(
          absl::StrCat("plan: tensor=", need.tensor, ": must be below ", tensors.size()));
    const TensorShape& tensor = tensors[need.tensor];
    const Shelf& shelf = shelves[need.tensor];
    const uint64_t grain = std::max<uint64_t>(1, kGrainBytes / tensor.element_bytes);
    for (uint64_t at = need.box.begin; at < need.box.end;) {
      uint64_t limit = need.box.end;
      const Holding* best = SelfAt(shelf, need.member, at, &limit);
      if (best == nullptr) {
        limit = std::min(limit, at + grain);
        for (const Holding& h : shelf.all) {
          if (h.box.begin > at || at >= h.box.end) continue;
          if (best == nullptr || load[h.member] < load[best->member]) best = &h;
        }
        if (best == nullptr) {
          return absl::DataLossError(
              absl::StrCat(Elements(tensor, {at, need.box.end}), " no longer exist on any member"));
        }
      }
      const Box box{at, std::min(limit, best->box.end)};
      if (best->member != need.member) load[best->member] += box.size() * tensor.element_bytes;
      // Adjacent grains of one sender become one copy.
      if (!plan.copies.empty() && plan.copies.back().tensor == need.tensor &&
          plan.copies.back().target == need.member && plan.copies.back().box.end == at &&
          plan.copies.back().source == best->member && plan.copies.back().origin == best->origin) {
        plan.copies.back().box.end = box.end;
      } else {
        plan.copies.push_back({need.tensor, box, best->member, best->origin, need.member});
      }
      at = box.end;
    }
  }
  return plan;
}

absl::StatusOr<Plan> PlanChange(std::span<const TensorShape> tensors, const World& from,
                                const World& to) {
  std::vector<Holding> holdings;
  const auto slots = static_cast<uint32_t>(from.members.size());
  for (uint32_t t = 0; t < tensors.size(); ++t) {
    for (uint32_t slot = 0; slot < slots; ++slot) {
      holdings.push_back(
          {from.members[slot].member, t, PartOf(tensors[t], slots, slot), Origin::kLive});
    }
  }
  return CheckedPlan(tensors, holdings, NeedsOf(tensors, to));
}

bool KeptWhole(const TensorShape& tensor) {
  return tensor.change == Change::kVolatile && tensor.division == Division::kReplicated;
}

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

absl::Status CheckPlan(std::span<const TensorShape> tensors, std::span<const Holding> holdings,
                       std::span<const Need> needs, const Plan& plan) {
  size_t next = 0;
  for (const Need& need : needs) {
    uint64_t at = need.box.begin;
    for (; at < need.box.end; ++next) {
      if (next >= plan.copies.size()) break;
      const BoxCopy& c = plan.copies[next];
      if (c.tensor != need.tensor || c.target != need.member || c.box.begin != at ||
          c.box.empty() || c.box.end > need.box.end) {
        break;
      }
      const bool held = std::any_of(holdings.begin(), holdings.end(), [&](const Holding& h) {
        return h.member == c.source && h.tensor == c.tensor && h.origin == c.origin &&
               h.box.Contains(c.box);
      });
      if (!held) {
        return absl::InternalError(absl::StrCat("plan: member ", c.source, " does not have ",
                                                Elements(tensors[c.tensor], c.box)));
      }
      at = c.box.end;
    }
    if (!need.box.empty() && at != need.box.end) {
      return absl::InternalError(absl::StrCat("plan: ", Elements(tensors[need.tensor], need.box),
                                              " of member ", need.member,
                                              " are not covered exactly once"));
    }
  }
  if (next != plan.copies.size())
    return absl::InternalError(
        absl::StrCat("plan: copies=", plan.copies.size(), ": only ", next, " are needed"));
  return absl::OkStatus();
}

uint64_t PlanHash(std::span<const TensorShape> tensors, const World& from, const World& to,
                  const Plan& plan) {
  ByteWriter out;
  for (const TensorShape& t : tensors) {
    out.PutString(t.name);
    out.Put(t.elements);
    out.Put(t.element_bytes);
    out.Put(t.division);
    out.Put(t.change);
  }
  for (const World* world : {&from, &to}) {
    out.Put(world->epoch);
    for (const WorldMember& m : world->members) {
      out.Put(m.member);
      out.Put(m.incarnation);
    }
  }
  for (const BoxCopy& c : plan.copies) {
    out.Put(c.tensor);
    out.Put(c.box.begin);
    out.Put(c.box.end);
    out.Put(c.source);
    out.Put(c.origin);
    out.Put(c.target);
  }
  return ContentHash(out.bytes().data(), out.bytes().size(), 0);
}

}  // namespace rewire::state
