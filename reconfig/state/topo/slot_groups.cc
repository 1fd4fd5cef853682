#include "reconfig/state/topo/slot_groups.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace rewire::state {
namespace {

// Returns the axes with these names in the order of `all`. Empty: a name is unknown or repeated.
std::vector<Axis> Named(const std::vector<Axis>& all, const std::vector<std::string>& names) {
  std::vector<Axis> axes;
  for (const Axis& axis : all) {
    if (std::find(names.begin(), names.end(), axis.name) != names.end()) axes.push_back(axis);
  }
  if (axes.size() != names.size()) axes.clear();
  return axes;
}

absl::Status Wrong(const std::string& field, const std::string& value, const std::string& must) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ": ", must));
}

}  // namespace

SlotGroups::SlotGroups(const Parallel& parallel, std::vector<Axis> axes)
    : slots_(parallel.slots()), working_(parallel.working()), axes_(std::move(axes)) {}

absl::StatusOr<SlotGroups> SlotGroups::Along(const Parallel& parallel, const std::string& axes) {
  const std::vector<std::string> names = absl::StrSplit(axes, '-');
  std::vector<Axis> named = Named(AxesOf(parallel), names);
  if (!named.empty()) return SlotGroups(parallel, std::move(named));
  named = Named(ExpertAxesOf(parallel), names);
  if (named.empty()) {
    return Wrong("axes", axes,
                 "must be some of tp, cp, dp, pp, or some of etp, ep, edp, pp, each at most once, "
                 "joined by '-'");
  }
  if (absl::Status status = CheckExperts(parallel); !status.ok()) return status;
  return SlotGroups(parallel, std::move(named));
}

absl::StatusOr<std::vector<uint32_t>> SlotGroups::GroupOf(uint32_t slot) const {
  if (slot >= slots_) {
    return Wrong("slot", absl::StrCat(slot),
                 absl::StrCat("must be below ", slots_, ", the layout's slots"));
  }
  if (slot >= working_) return std::vector<uint32_t>{slot};
  uint32_t lowest = slot;
  for (const Axis& axis : axes_) lowest -= slot / axis.stride % axis.size * axis.stride;
  std::vector<uint32_t> group = {lowest};
  for (const Axis& axis : axes_) {
    const size_t before = group.size();  // each axis repeats these at its other coordinates
    group.reserve(before * axis.size);
    for (uint32_t at = 1; at < axis.size; ++at) {
      for (size_t i = 0; i < before; ++i) group.push_back(group[i] + at * axis.stride);
    }
  }
  return group;
}

}  // namespace rewire::state
