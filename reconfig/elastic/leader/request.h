// The changes that an operator (or a reclaim notice) may request, and the resulting world.
//
// Pure functions, thread-safe. For the leader, and for early checks of a request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/world/world.h"

namespace rewire::elastic {

enum class RequestKind : uint8_t {
  kResize = 1,   // to `size` members: new ones are appended, or the newest (highest ids) leave:
                 // OrderSlots() has put those between older ones, so least state moves back
  kDrain = 2,    // `members` leave; the others keep their order
  kReplace = 3,  // `members` (one) leaves, a new member takes its slot
  kRebuild = 4,  // same members, new generations
};

struct ChangeRequest {
  RequestKind kind = RequestKind::kRebuild;
  uint32_t size = 0;
  std::vector<MemberId> members;
  std::optional<Duration> within;  // kDrain: the members are gone after this time, ready or not
  std::string reason;              // for people: shown in status and trace
};

// Describes the request, for example "drain 3 5 within 120000 ms".
std::string Describe(const ChangeRequest& request);

// Returns the members that `request` makes of `members`, in slot order. Takes new ids from
// *next_member. Fails, naming the fault, on a size of 0 or above max_members, on an unknown or
// doubled member, and if no member would be left. Changes *next_member only on success.
absl::StatusOr<std::vector<MemberId>> ApplyRequest(const ChangeRequest& request,
                                                   std::vector<MemberId> members,
                                                   uint32_t max_members, MemberId* next_member);

// Returns the same members in an order, chosen greedily, in which little state moves. Remaining
// members keep their order, and each takes the slot whose equal share of the state overlaps most
// with its present share. New members take the slots between.
std::vector<MemberId> OrderSlots(const std::vector<MemberId>& from,
                                 const std::vector<MemberId>& members);

}  // namespace rewire::elastic
