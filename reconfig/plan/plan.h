// What must move from one layout to another: box copies, without addresses.
//
// Pure and deterministic: every member derives the same plan from the same input, and PlanHash()
// says so. Every element of every target has exactly one source: the member itself where it has the
// element (no byte moves), else the sender with the least to send so far, ties to the lowest slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/topo/layout.h"
#include "reconfig/transition/messages.h"

namespace rewire {

// Where a member has bytes that may be read.
enum class Origin : uint8_t {
  kLive = 0,           // the part in place
  kOwnSnapshot = 1,    // its own copy of what its slot snapshots
  kBuddySnapshot = 2,  // its copy of what the previous slot snapshots
};

struct Holding {
  MemberId member = 0;
  uint32_t tensor = 0;  // index into the tensors
  Box box;
  Origin origin = Origin::kLive;
  bool operator==(const Holding&) const = default;
};

// `member` must have `box` of a tensor.
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

// Assigns a source to every element of every need. Fails, naming tensor and elements, where nobody
// holds an element. The order of holdings is the order of preference among equals.
absl::StatusOr<Plan> AssignSources(std::span<const TensorShape> tensors,
                                   std::span<const Holding> holdings, std::span<const Need> needs);

// A planned change of members: everyone in `from` has its part in place.
absl::StatusOr<Plan> PlanChange(std::span<const TensorShape> tensors, const World& from,
                                const World& to);

// What a slot snapshots of a tensor (reconfig/snapshot): its shard of every constant tensor, also
// of a replicated one, whose pieces together make one copy; its part of a volatile sharded one.
// Volatile replicated tensors are kept whole by everyone, transient ones by nobody.
Box SnapshotPart(const TensorShape& tensor, uint32_t slots, uint32_t slot);
// Whether constant tensors are copied: only where something exists once. Elsewhere every member has
// all of them.
bool CopiesPieces(std::span<const TensorShape> tensors);
// The same for the leader, which knows no tensors.
StateLayout LayoutOf(std::span<const TensorShape> tensors, uint32_t slots);

// After a loss: the state of `from` at the version of `sources`, for the members of `to`. Volatile
// tensors come from copies alone: the step that was interrupted has changed them in place.
absl::StatusOr<Plan> PlanRestore(std::span<const TensorShape> tensors, const World& from,
                                 const World& to, const RestoreSources& sources);

// Every need covered exactly once, every copy inside a holding of its source. For tests and, before
// a byte moves, for every plan.
absl::Status CheckPlan(std::span<const TensorShape> tensors, std::span<const Holding> holdings,
                       std::span<const Need> needs, const Plan& plan);

// Equal on all members when tensors, worlds and plan are.
uint64_t PlanHash(std::span<const TensorShape> tensors, const World& from, const World& to,
                  const Plan& plan);

}  // namespace rewire
