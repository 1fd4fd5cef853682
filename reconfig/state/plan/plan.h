// Computes which boxes must move from one layout to another: box copies, without addresses.
//
// Pure and deterministic: every member derives the same plan from the same input, which PlanHash()
// confirms. Every element of every target has exactly one source. A member that has the element is
// its own source, so that no byte moves. Otherwise the sender with the least bytes so far is the
// source, with ties to the lowest slot. The same facts decide which state is copied, and how a loss
// is undone. Used by participant and snapshot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/state/topo/layout.h"
#include "reconfig/world/world.h"

namespace rewire::state {

// The kind of memory from which a member provides bytes.
enum class Origin : uint8_t {
  kLive = 0,           // the part in place
  kOwnSnapshot = 1,    // the member's copy of its own slot's part
  kBuddySnapshot = 2,  // the member's copy of the previous slot's part
};

struct Holding {
  MemberId member = 0;
  uint32_t tensor = 0;  // index into the tensors
  Box box;
  Origin origin = Origin::kLive;
  bool operator==(const Holding&) const = default;
};

// States that `member` must have `box` of a tensor.
struct Need {
  MemberId member = 0;
  uint32_t tensor = 0;
  Box box;
};

struct BoxCopy {
  uint32_t tensor = 0;
  Box box;
  MemberId source = 0;
  Origin origin = Origin::kLive;
  MemberId target = 0;
  bool operator==(const BoxCopy&) const = default;
  [[nodiscard]] bool local() const { return source == target; }
};

struct Plan {
  std::vector<BoxCopy> copies;  // in the order of needs; boxes of one need ascend
  [[nodiscard]] uint64_t BytesOnWire(std::span<const TensorShape> tensors) const;
};

// Assigns a source to every element of every need. Fails, naming tensor and elements, when no
// member holds an element. Among equal sources the first holding wins.
absl::StatusOr<Plan> AssignSources(std::span<const TensorShape> tensors,
                                   std::span<const Holding> holdings, std::span<const Need> needs);

// Plans a change of members, in which every member of `from` has its part in place.
absl::StatusOr<Plan> PlanChange(std::span<const TensorShape> tensors, const World& from,
                                const World& to);

// Returns whether every member copies the whole tensor and sends the copy to no other member: a
// tensor that is volatile and replicated.
bool KeptWhole(const TensorShape& tensor);
// Returns the box of a tensor that a slot copies (reconfig/state/snapshot): its shard of every
// constant tensor, also of a replicated one, whose pieces together make one copy; and its part of a
// volatile sharded tensor. Every member copies the whole of a volatile replicated tensor, and none
// copies a transient tensor.
Box SnapshotPart(const TensorShape& tensor, uint32_t slots, uint32_t slot);
// Returns whether constant tensors are copied: only when some tensor is sharded. Otherwise every
// member has all of them.
bool CopiesPieces(std::span<const TensorShape> tensors);
// Summarises the same facts for the leader, which does not know the tensors.
StateLayout LayoutOf(std::span<const TensorShape> tensors, uint32_t slots);

// Plans the restore of `from` after a loss, at the version of `sources`, for the members of `to`.
// Volatile tensors come from copies only, because the interrupted step has changed them in place.
absl::StatusOr<Plan> PlanRestore(std::span<const TensorShape> tensors, const World& from,
                                 const World& to, const RestoreSources& sources);

// Checks that every need is covered exactly once and every copy is inside a holding of its source.
// Every plan is checked before a byte moves.
absl::Status CheckPlan(std::span<const TensorShape> tensors, std::span<const Holding> holdings,
                       std::span<const Need> needs, const Plan& plan);

// Returns a hash that is equal on all members when tensors, worlds and plan are equal.
uint64_t PlanHash(std::span<const TensorShape> tensors, const World& from, const World& to,
                  const Plan& plan);

}  // namespace rewire::state
