// Plans the way from one parallel layout to another: which part of which tensor goes from which
// member to which.
//
// A member that has an element keeps it. Otherwise the element comes from a member of the same node
// that has it: the one that has sent the fewest bytes inside the node. If there is none, the
// element crosses to the node once, and the other members of the node that need it get it from the
// one that received it. What crosses is divided over the nodes that have it, so that the busiest
// one sends as little as possible (node_shares.h); inside a node, the member that has sent the
// fewest bytes to other nodes is the source. Pure and deterministic: every member derives the same
// plan from the same layouts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/state/plan/sources.h"

namespace rewire::state {

struct Move {
  uint32_t tensor = 0;
  Chunk chunk;
  MemberId source = 0;
  Origin origin = Origin::kLive;  // where the source has it
  MemberId target = 0;            // may be the source: the element stays
  // The source receives the chunk itself by another move of this plan.
  bool relayed = false;
  bool operator==(const Move&) const = default;
};

// Returns OK if both layouts divide the same tensors, and every member has one slot and one node.
// Roles, splits and stages may differ; names, shapes and element sizes may not.
absl::Status CheckSameTensors(const SeatedLayout& from, const SeatedLayout& to);

// Calls visit for each move, tensor by tensor. For each element that a slot of `to` has there is
// exactly one move with its member as the target, except for tensors that are not needed
// (Sources::Has). Fails, naming tensor and elements, when no member has an element. sources.from(),
// to: as CheckSameTensors() accepts them.
absl::Status PlanMoves(const Sources& sources, const SeatedLayout& to,
                       const std::function<void(const Move&)>& visit);

}  // namespace rewire::state
