#include "reconfig/control/cli/plan_report.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "reconfig/state/plan/overlap.h"

namespace rewire::control {
namespace {

constexpr size_t kLinksShown = 10;
constexpr size_t kMembersShown = 64;
constexpr double kGridLeft = 60, kGridTop = 60, kGridSide = 480;

// Returns the bytes of a tensor in each slot.
std::vector<uint64_t> BytesBySlot(const state::ParallelLayout& layout, size_t tensor) {
  std::vector<uint64_t> bytes(layout.slots());
  std::vector<std::optional<uint64_t>> of_class(layout.Classes(tensor));
  for (uint32_t slot = 0; slot < layout.slots(); ++slot) {
    const std::optional<uint32_t> number = layout.ClassOf(tensor, slot);
    if (!number) continue;
    std::optional<uint64_t>& known = of_class[*number];
    if (!known) {
      known = 0;
      for (const state::Piece& piece : layout.PiecesOf(tensor, slot)) {
        *known += piece.chunk.elements() * layout.tensors()[tensor].element_bytes;
      }
    }
    bytes[slot] = *known;
  }
  return bytes;
}

std::string Bytes(uint64_t bytes) {
  if (bytes < 1000) return absl::StrCat(bytes, " B");
  double amount = static_cast<double>(bytes);
  const char* unit = "B";
  for (const char* larger : {"kB", "MB", "GB", "TB", "PB"}) {
    if (amount < 999.5) break;
    amount /= 1000;
    unit = larger;
  }
  const int digits = amount < 9.995 ? 2 : amount < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f %s", digits, amount, unit);
}

}  // namespace

using nlohmann::ordered_json;

PlanReport::PlanReport(const state::SeatedLayout& from, const state::SeatedLayout& to)
    : from_(from) {
  for (const state::SeatedLayout* world : {&from, &to}) {
    uint64_t Member::*const side = world == &from ? &Member::before : &Member::after;
    for (uint32_t slot = 0; slot < world->seats.size(); ++slot) {
      Member& member = members_[world->seats[slot].member];
      member.node = world->seats[slot].node;
      if (world == &to) member.slot = slot;
    }
    for (size_t tensor = 0; tensor < world->layout->tensors().size(); ++tensor) {
      const std::vector<uint64_t> bytes = BytesBySlot(*world->layout, tensor);
      for (uint32_t slot = 0; slot < bytes.size(); ++slot) {
        members_[world->seats[slot].member].*side += bytes[slot];
      }
    }
  }
  CountOnce(to);
}

void PlanReport::CountOnce(const state::SeatedLayout& to) {
  state::OverlapCache overlaps(*from_.layout, *to.layout);
  const auto sizes = [](const state::ParallelLayout& layout, size_t tensor) {
    std::vector<size_t> sizes;
    const std::vector<uint32_t> classes = state::ClassesBySlot(layout, tensor);
    for (const auto& slots : state::SlotsByClass(classes, layout.Classes(tensor))) {
      sizes.push_back(slots.size());
    }
    return sizes;
  };
  for (size_t tensor = 0; tensor < from_.layout->tensors().size(); ++tensor) {
    const std::vector<size_t> old_sizes = sizes(*from_.layout, tensor);
    const std::vector<size_t> new_sizes = sizes(*to.layout, tensor);
    const auto once = [](const std::vector<uint32_t>& classes, const std::vector<size_t>& slots) {
      size_t sum = 0;
      for (const uint32_t number : classes) sum += slots[number];
      return sum == 1;
    };
    for (const state::Overlap& overlap : overlaps.Of(tensor)) {
      const uint64_t bytes =
          overlap.chunk.elements() * from_.layout->tensors()[tensor].element_bytes;
      if (once(overlap.from, old_sizes)) once_before_ += bytes;
      if (once(overlap.to, new_sizes)) once_after_ += bytes;
    }
  }
}

double PlanReport::SecondsAtLeast(const Bandwidths& bandwidths) const {
  double seconds = 0;
  const auto take = [&](const auto& links, double bandwidth) {
    for (const auto& [id, traffic] : links) {
      if (bandwidth > 0)
        seconds = std::max(seconds, static_cast<double>(traffic.most()) / bandwidth);
    }
  };
  take(node_links_, bandwidths.node);
  take(inside_links_, bandwidths.member);
  return seconds;
}

void PlanReport::Add(const state::Move& move) {
  const uint64_t bytes = move.chunk.elements() * from_.layout->tensors()[move.tensor].element_bytes;
  Member& source = members_[move.source];
  Member& target = members_[move.target];
  if (move.source == move.target) {
    source.stays += bytes;
    return;
  }
  source.sends += bytes;
  target.receives += bytes;
  between_members_[{move.source, move.target}] += bytes;
  if (source.node == target.node) {
    inside_ += bytes;
    inside_links_[move.source].out += bytes;
    inside_links_[move.target].in += bytes;
  } else {
    node_links_[source.node].out += bytes;
    node_links_[target.node].in += bytes;
    between_nodes_[{source.node, target.node}] += bytes;
  }
}

uint64_t PlanReport::Sum(uint64_t Member::*bytes) const {
  uint64_t sum = 0;
  for (const auto& [id, member] : members_) sum += member.*bytes;
  return sum;
}

std::vector<std::pair<uint64_t, std::pair<uint32_t, uint32_t>>> PlanReport::BusiestLinks() const {
  std::vector<std::pair<uint64_t, std::pair<uint32_t, uint32_t>>> links;
  for (const auto& [ends, bytes] : between_nodes_) links.emplace_back(bytes, ends);
  std::sort(links.begin(), links.end(), [](const auto& a, const auto& b) {
    return std::pair(b.first, a.second) < std::pair(a.first, b.second);
  });
  return links;
}

uint64_t PlanReport::BetweenNodes() const {
  uint64_t sum = 0;
  for (const auto& [ends, bytes] : between_nodes_) sum += bytes;
  return sum;
}

ordered_json PlanReport::ToJson() const {
  ordered_json out;
  uint64_t peak = 0;
  for (const auto& [id, member] : members_) peak = std::max(peak, member.peak());
  out["bytes_that_stay"] = Sum(&Member::stays);
  out["bytes_inside_nodes"] = inside_;
  out["bytes_between_nodes"] = BetweenNodes();
  out["peak_bytes_of_a_member"] = peak;
  out["bytes_that_exist_once"] = {{"before", once_before_}, {"after", once_after_}};
  out["members"] = ordered_json::array();
  for (const auto& [id, m] : members_) {
    out["members"].push_back({{"member", id},
                              {"node", m.node},
                              {"slot", m.slot ? ordered_json(*m.slot) : ordered_json()},
                              {"before", m.before},
                              {"after", m.after},
                              {"peak", m.peak()},
                              {"stays", m.stays},
                              {"sends", m.sends},
                              {"receives", m.receives}});
  }
  out["links"] = ordered_json::array();
  for (const auto& [bytes, ends] : BusiestLinks()) {
    out["links"].push_back({{"from", ends.first}, {"to", ends.second}, {"bytes", bytes}});
  }
  return out;
}

std::string PlanReport::Text() const {
  std::string text =
      absl::StrCat("stays in place      ", Bytes(Sum(&Member::stays)), "\nmoves inside nodes  ",
                   Bytes(inside_), "\nmoves between nodes ", Bytes(BetweenNodes()),
                   "\nexists once         ", Bytes(once_before_), " before, ", Bytes(once_after_),
                   " after\n\n", absl::StrFormat("%8s %6s %8s", "member", "node", "slot"));
  for (const char* column : {"before", "after", "peak", "stays", "sends", "receives"}) {
    text += absl::StrFormat(" %10s", column);
  }
  text += "\n";
  for (const auto& [id, m] : members_) {
    text += absl::StrFormat("%8d %6d %8s", id, m.node, m.slot ? absl::StrCat(*m.slot) : "leaves");
    for (const uint64_t bytes : {m.before, m.after, m.peak(), m.stays, m.sends, m.receives}) {
      text += absl::StrFormat(" %10s", Bytes(bytes));
    }
    text += "\n";
  }
  const auto links = BusiestLinks();
  if (links.empty()) return text;
  text += absl::StrCat("\nbusiest of ", links.size(), " links between nodes\n");
  for (size_t i = 0; i < std::min(links.size(), kLinksShown); ++i) {
    text += absl::StrFormat("%8d to %d: %s\n", links[i].second.first, links[i].second.second,
                            Bytes(links[i].first));
  }
  return text;
}

std::string PlanReport::Svg(const std::string& title) const {
  const uint32_t first_node = members_.begin()->second.node;
  const bool one_node = std::all_of(members_.begin(), members_.end(), [=](const auto& each) {
    return each.second.node == first_node;
  });
  const bool by_member = one_node || members_.size() <= kMembersShown;
  const Links& links = by_member ? between_members_ : between_nodes_;
  std::set<uint32_t> ids;
  for (const auto& [id, member] : members_) ids.insert(by_member ? id : member.node);
  std::map<uint32_t, size_t> place;
  for (const uint32_t id : ids) place.emplace(id, place.size());
  uint64_t most = 1;
  for (const auto& [ends, bytes] : links) most = std::max(most, bytes);
  const double cell = kGridSide / static_cast<double>(std::max<size_t>(1, ids.size()));
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
      "<text x=\"%.0f\" y=\"20\">%s</text>\n"
      "<text x=\"%.0f\" y=\"38\">to %s, from top to bottom: from; darkest: %s</text>\n",
      kGridLeft + kGridSide + 20, kGridTop + kGridSide + 20, kGridLeft,
      absl::StrReplaceAll(title, {{"&", "&amp;"}, {"<", "&lt;"}}), kGridLeft,
      by_member ? "member" : "node", Bytes(most));
  for (const auto& [id, at] : place) {
    const double middle = (static_cast<double>(at) + 0.5) * cell;
    svg += absl::StrFormat(
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" font-size=\"9\">%d</text>\n"
        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" font-size=\"9\">%d</text>\n",
        kGridLeft + middle, kGridTop - 4, id, kGridLeft - 4, kGridTop + middle + 3, id);
  }
  for (const auto& [ends, bytes] : links) {
    svg += absl::StrFormat(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"#2b6cb0\" "
        "fill-opacity=\"%.2f\"><title>%d to %d: %s</title></rect>\n",
        kGridLeft + static_cast<double>(place[ends.second]) * cell,
        kGridTop + static_cast<double>(place[ends.first]) * cell, cell, cell,
        0.1 + 0.9 * static_cast<double>(bytes) / static_cast<double>(most), ends.first, ends.second,
        Bytes(bytes));
  }
  return svg + absl::StrFormat(
                   "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" "
                   "stroke=\"black\"/>\n</svg>\n",
                   kGridLeft, kGridTop, kGridSide, kGridSide);
}

}  // namespace rewire::control
