// The places of one transition's state: NewParts allocates this member's parts in the next world,
// and ResolvePlan() gives the copies of a plan their addresses. Owned by the transition's threads,
// which call one after the other.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reconfig/elastic/participant/program_state.h"
#include "reconfig/state/plan/member_plan.h"
#include "reconfig/state/snapshot/snapshotter.h"
#include "reconfig/state/stream/intake.h"
#include "reconfig/state/stream/outflow.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::elastic {

// A new part of a tensor. Only a tensor whose part changes has a NewPart.
struct NewPart {
  uint32_t tensor = 0;
  state::Box box;  // as PartIn() numbers its elements
  state::StatePlace place;
};

class NewParts {
 public:
  // Returns true when the transition was aborted.
  using IsCancelled = std::function<bool()>;
  explicit NewParts(IsCancelled cancelled) : cancelled_(std::move(cancelled)) {}

  // Allocates this member's parts in the next world, by the program's callbacks. slot: in that
  // world; nullopt: the member leaves. Also after an error the parts are those that the program has
  // allocated. Fails when the program is ending.
  absl::Status Allocate(const ProgramState& state, const state::ParallelLayout& next,
                        std::optional<uint32_t> slot);
  // Writes the new memory, so that its pages exist when the stream comes.
  absl::Status Touch(const ProgramState& state);

  [[nodiscard]] const std::vector<NewPart>& parts() const { return parts_; }
  // Returns the address of this member's new part of each tensor.
  [[nodiscard]] const std::vector<state::StatePlace>& targets() const { return targets_; }

 private:
  absl::Status AllocateOne(const ProgramState& state, uint32_t tensor, const state::Box& box);
  absl::Status Clear(const state::StatePlace& place, uint64_t bytes);
  // Clears the elements of `box` outside the present part, for a part that stays in place.
  absl::Status ClearAround(const state::PlacedTensor& now, const state::Box& box);

  const IsCancelled cancelled_;
  state::StateMemory memory_;
  std::vector<NewPart> parts_;
  std::vector<state::StatePlace> targets_;
};

// The copies of a plan that this member takes part in, with their addresses.
struct ResolvedPlan {
  std::vector<state::Incoming> incoming;  // from other members
  std::vector<state::Outgoing> outgoing;  // to other members, and inside this member
};

// The state that this member has: in place and, after a loss, as copies of `version`.
struct StateSources {
  const std::vector<state::PlacedTensor>& tensors;
  const state::Snapshotter* snapshots = nullptr;
  uint64_t version = 0;
};

// The worlds of a transition with their layouts.
struct Worlds {
  const state::SeatedLayout& from;
  const state::SeatedLayout& to;
  const World& next;  // the members of `to`, with their addresses
};

// targets: the address of this member's new part of each tensor. Fails when this member has no copy
// that the plan takes from it.
absl::StatusOr<ResolvedPlan> ResolvePlan(const state::MemberPlan& plan, MemberId self,
                                         const Worlds& worlds, const StateSources& sources,
                                         const std::vector<state::StatePlace>& targets);

// Fails when the kept copies that the plan takes from this member are not whole, because a lost
// member's process still lives and writes. Call after they have been read.
absl::Status CheckKept(const state::MemberPlan& plan, MemberId self,
                       const state::SnapshotSlots& kept, uint64_t version);

}  // namespace rewire::elastic
