// Implements rewireLayoutGroup() of the C interface. Thread-safe.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/api/arguments.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/elastic/participant/parsed_layout.h"
#include "reconfig/state/topo/slot_groups.h"
#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

absl::StatusOr<std::vector<uint32_t>> GroupIn(const char* layout, const char* axes, uint32_t slot) {
  const absl::StatusOr<const ParsedLayout*> parsed = Parsed(layout);
  if (!parsed.ok()) return parsed.status();
  const auto groups = state::SlotGroups::Along((*parsed)->layout.parallel(), axes);
  if (!groups.ok()) return groups.status();
  return groups->GroupOf(slot);
}

}  // namespace
}  // namespace rewire::elastic

extern "C" rewireResult_t rewireLayoutGroup(const char* layout, const char* axes, uint32_t slot,
                                            rewireGroup_t* group, uint32_t* slots,
                                            uint32_t capacity) noexcept {
  const rewire::PostponedCancellation postponed;
  rewire::Arguments arguments("rewireLayoutGroup");
  arguments.NotNull("layout", layout).NotNull("axes", axes);
  arguments.Sized("group", "rewireGroup_t", group);
  if (capacity > 0) arguments.NotNull("slots", slots);
  if (arguments.result() != rewireSuccess) return arguments.result();
  const auto found = rewire::elastic::GroupIn(layout, axes, slot);
  if (!found.ok()) {
    return rewire::Fail(rewireInvalidArgument,
                        absl::StrCat("rewireLayoutGroup: ", found.status().message()));
  }
  const auto own = std::lower_bound(found->begin(), found->end(), slot);
  *group = {group->size, static_cast<uint32_t>(found->size()),
            static_cast<uint32_t>(own - found->begin())};
  std::copy_n(found->begin(), std::min<size_t>(capacity, found->size()), slots);
  return rewireSuccess;
}
