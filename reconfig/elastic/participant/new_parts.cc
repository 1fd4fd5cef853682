// Allocates new parts and resolves plans; see new_parts.h. Owned by the transition's threads.
#include "reconfig/elastic/participant/new_parts.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "reconfig/base/check.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/state/plan/snapshot_part.h"

namespace rewire::elastic {
namespace {

// Returns the address of an element in the old part, or its address if the part reached that far.
state::StatePlace PlaceOf(const state::PlacedTensor& tensor, uint64_t element) {
  state::StatePlace place = tensor.place;
  place.data += (static_cast<int64_t>(element) - static_cast<int64_t>(tensor.part.begin)) *
                static_cast<int64_t>(tensor.shape.element_bytes);
  return place;
}

// Makes the tensor's device current, which the program's allocator may rely on.
absl::Status SelectDevice(const state::PlacedTensor& tensor) {
  if (tensor.place.kind != state::MemoryKind::kDevice || tensor.place.context == nullptr) {
    return absl::OkStatus();
  }
  std::string error;
  const CudaDriver* const driver = CudaDriver::Get(&error);
  if (driver == nullptr) return absl::UnavailableError(error);
  const CUresult result = driver->CtxSetCurrent(tensor.place.context);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(driver->Describe("cuCtxSetCurrent", result));
}

// Returns whether the program has, or makes, room for the new part at the address of the old part.
bool InPlace(const ProgramState& state, uint32_t tensor, const state::Box& box) {
  const state::PlacedTensor& now = state.tensors[tensor];
  const rewireCallbacks_t& program = state.callbacks;
  return program.in_place != nullptr && now.shape.change == state::Change::kConstant &&
         now.shape.division != state::Division::kByLayout && now.place.data != nullptr &&
         program.in_place(program.arg, now.shape.name.c_str(), box.begin, box.end) != 0;
}

}  // namespace

// ---- allocation ---------------------------------------------------------------------------------

absl::Status NewParts::Allocate(const ProgramState& state, const state::ParallelLayout& next,
                                std::optional<uint32_t> slot) {
  for (uint32_t t = 0; t < state.tensors.size(); ++t) {
    const state::PlacedTensor& now = state.tensors[t];
    targets_.push_back(now.place);
    if (!slot || SamePart(*state.layout, state.slot, next, *slot, t)) continue;
    if (cancelled_()) return absl::CancelledError("the transition was aborted");
    REWIRE_RETURN_IF_ERROR(AllocateOne(state, t, PartIn(next, *slot, now.shape, t)));
  }
  return absl::OkStatus();
}

absl::Status NewParts::AllocateOne(const ProgramState& state, uint32_t tensor,
                                   const state::Box& box) {
  const state::PlacedTensor& now = state.tensors[tensor];
  REWIRE_RETURN_IF_ERROR(SelectDevice(now));
  const ProgramCalls::Call call(state.calls);
  if (!call.allowed()) return ProgramEnding();
  if (InPlace(state, tensor, box)) {
    targets_[tensor] = PlaceOf(now, box.begin);
    parts_.push_back({tensor, box, targets_[tensor]});
    return absl::OkStatus();
  }
  const uint64_t bytes = box.size() * now.shape.element_bytes;
  state::StatePlace place = now.place;
  place.data = nullptr;
  if (bytes > 0) {
    REWIRE_DCHECK(state.callbacks.allocate != nullptr);  // rewireUpdate() has refused it
    place.data = static_cast<char*>(
        state.callbacks.allocate(state.callbacks.arg, now.shape.name.c_str(), bytes));
    if (place.data == nullptr) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "tensor ", now.shape.name, ": the allocate callback returned NULL for the new part of ",
          bytes, " bytes"));
    }
  }
  parts_.push_back({tensor, box, place});
  targets_[tensor] = place;
  return absl::OkStatus();
}

absl::Status NewParts::Touch(const ProgramState& state) {
  for (const NewPart& part : parts_) {
    const state::PlacedTensor& now = state.tensors[part.tensor];
    const bool in_place =
        now.place.data != nullptr && part.place.data == PlaceOf(now, part.box.begin).data;
    REWIRE_RETURN_IF_ERROR(in_place ? ClearAround(now, part.box)
                                    : Clear(part.place, part.box.size() * now.shape.element_bytes));
  }
  return absl::OkStatus();
}

absl::Status NewParts::Clear(const state::StatePlace& place, uint64_t bytes) {
  constexpr uint64_t kTurn = 16 << 20;
  for (uint64_t at = 0; at < bytes; at += kTurn) {
    if (cancelled_()) return absl::CancelledError("the transition was aborted");
    REWIRE_RETURN_IF_ERROR(memory_.Clear(place.At(at), std::min(kTurn, bytes - at)));
  }
  return absl::OkStatus();
}

absl::Status NewParts::ClearAround(const state::PlacedTensor& now, const state::Box& box) {
  const state::Box before{box.begin, std::min(box.end, now.part.begin)};
  const state::Box behind{std::max(box.begin, now.part.end), box.end};
  for (const state::Box& fresh : {before, behind}) {
    REWIRE_RETURN_IF_ERROR(
        Clear(PlaceOf(now, fresh.begin), fresh.size() * now.shape.element_bytes));
  }
  return absl::OkStatus();
}

// ---- the plan with addresses --------------------------------------------------------------------

namespace {

std::optional<uint32_t> SlotIn(const state::SeatedLayout& world, MemberId member) {
  for (uint32_t slot = 0; slot < world.seats.size(); ++slot) {
    if (world.seats[slot].member == member) return slot;
  }
  return std::nullopt;
}

class Resolver {
 public:
  Resolver(MemberId self, const Worlds& worlds, const StateSources& sources,
           const std::vector<state::StatePlace>& targets)
      : self_(self), worlds_(worlds), sources_(sources), targets_(targets) {}

  absl::Status Add(const state::MemberMove& planned) {
    const state::Move& move = planned.move;
    REWIRE_CHECK(!move.relayed);  // a job is on one node
    const state::PlacedTensor& tensor = sources_.tensors[move.tensor];
    const uint64_t bytes = move.chunk.elements() * tensor.shape.element_bytes;
    state::StateRuns place;
    if (move.target == self_) {
      place = {targets_[move.tensor], RunsIn(worlds_.to, self_, move)};
      if (move.source != self_) {
        // Copies are in no part, and nobody maps them.
        const state::Runs from = move.origin == state::Origin::kLive
                                     ? RunsIn(worlds_.from, move.source, move)
                                     : state::Runs(0, bytes);
        const bool late = tensor.shape.change != state::Change::kConstant;
        resolved_.incoming.push_back(
            {move.tensor, planned.begin, planned.begin + bytes, move.source, from, place, late});
        return absl::OkStatus();
      }
    }
    REWIRE_ASSIGN_OR_RETURN(const state::StateRuns source, SourceOf(move));
    const bool local = move.target == self_;
    // The part stays at its address.
    if (local && source.place().data == place.place().data && source.runs.Alike(place.runs)) {
      return absl::OkStatus();
    }
    state::Outgoing out;
    out.tensor = move.tensor;
    out.begin = planned.begin;
    out.end = planned.begin + bytes;
    out.source = source;
    out.local = local;
    out.place = place;
    if (!local) out.target = worlds_.next.members[*worlds_.next.SlotOf(move.target)];
    resolved_.outgoing.push_back(out);
    return absl::OkStatus();
  }

  ResolvedPlan Take() { return std::move(resolved_); }

 private:
  // Returns where the chunk is in memory that has these pieces.
  [[nodiscard]] state::Runs RunsOf(const std::vector<state::Piece>& pieces,
                                   const state::Move& move) const {
    for (const state::Piece& piece : pieces) {
      if (Intersection(piece.chunk, move.chunk) != move.chunk) continue;
      return {piece, move.chunk, sources_.tensors[move.tensor].shape.element_bytes};
    }
    REWIRE_CHECK(false);  // the plan's chunks are in one piece each
    return {};
  }

  [[nodiscard]] state::Runs RunsIn(const state::SeatedLayout& world, MemberId member,
                                   const state::Move& move) const {
    return RunsOf(world.layout->PiecesOf(move.tensor, *SlotIn(world, member)), move);
  }

  [[nodiscard]] absl::StatusOr<state::StateRuns> SourceOf(const state::Move& move) const {
    const state::PlacedTensor& tensor = sources_.tensors[move.tensor];
    if (move.origin == state::Origin::kLive) {
      return state::StateRuns{tensor.place, RunsIn(worlds_.from, self_, move)};
    }
    const uint32_t own = *SlotIn(worlds_.from, self_);
    const auto slots = static_cast<uint32_t>(worlds_.from.seats.size());
    const bool buddy = move.origin == state::Origin::kBuddySnapshot;
    const uint32_t slot = buddy ? (own + slots - 1) % slots : own;
    const state::SnapshotSlots& copies =
        buddy ? sources_.snapshots->kept() : sources_.snapshots->own();
    const char* const copy = copies.Piece(sources_.version, move.tensor);
    const state::Box part = SnapshotPart(*worlds_.from.layout, move.tensor, slot);
    if (copy == nullptr || copies.PieceBox(move.tensor) != part) {
      return absl::DataLossError(absl::StrCat("restore tensor ", tensor.shape.name, " ",
                                              Text(move.chunk), ": no snapshot of version ",
                                              sources_.version));
    }
    return state::StateRuns{{state::MemoryKind::kHost, const_cast<char*>(copy), nullptr},
                            RunsOf(worlds_.from.layout->PiecesOf(move.tensor, slot, part), move)};
  }

  const MemberId self_;
  const Worlds& worlds_;
  const StateSources& sources_;
  const std::vector<state::StatePlace>& targets_;
  ResolvedPlan resolved_;
};

}  // namespace

absl::StatusOr<ResolvedPlan> ResolvePlan(const state::MemberPlan& plan, MemberId self,
                                         const Worlds& worlds, const StateSources& sources,
                                         const std::vector<state::StatePlace>& targets) {
  Resolver resolver(self, worlds, sources, targets);
  for (const state::MemberMove& move : plan.moves) REWIRE_RETURN_IF_ERROR(resolver.Add(move));
  return resolver.Take();
}

absl::Status CheckKept(const state::MemberPlan& plan, MemberId self,
                       const state::SnapshotSlots& kept, uint64_t version) {
  std::set<uint32_t> taken;
  for (const auto& [move, begin] : plan.moves) {
    if (move.source == self && move.origin == state::Origin::kBuddySnapshot) {
      taken.insert(move.tensor);
    }
  }
  const std::vector<uint32_t> tensors(taken.begin(), taken.end());
  if (kept.HasWhole(version, tensors)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("restore version ", version,
                   ": the lost member's process still lives and has changed its copies"));
}

}  // namespace rewire::elastic
