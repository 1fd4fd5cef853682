// Allocates new parts and resolves plans; see new_parts.h. Owned by the transition's threads.
#include "reconfig/elastic/participant/new_parts.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "reconfig/base/check.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/status_macros.h"

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
         now.place.data != nullptr &&
         program.in_place(program.arg, now.shape.name.c_str(), box.begin, box.end) != 0;
}

// Returns where this member has the source of a copy.
absl::StatusOr<state::StatePlace> SourceOf(const state::BoxCopy& copy,
                                           const StateSources& sources) {
  const state::PlacedTensor& t = sources.tensors[copy.tensor];
  const uint64_t size = t.shape.element_bytes;
  if (copy.origin == state::Origin::kLive)
    return t.place.At((copy.box.begin - t.part.begin) * size);
  const state::SnapshotSlots& slots = copy.origin == state::Origin::kOwnSnapshot
                                          ? sources.snapshots->own()
                                          : sources.snapshots->kept();
  const char* piece = slots.Piece(sources.version, copy.tensor);
  const state::Box box = slots.PieceBox(copy.tensor);
  if (piece == nullptr || !box.Contains(copy.box)) {
    return absl::DataLossError(absl::StrCat("restore tensor ", t.shape.name, " elements [",
                                            copy.box.begin, ", ", copy.box.end,
                                            "): no snapshot of version ", sources.version));
  }
  return state::StatePlace{state::MemoryKind::kHost, const_cast<char*>(piece), nullptr}.At(
      (copy.box.begin - box.begin) * size);
}

}  // namespace

// ---- allocation ---------------------------------------------------------------------------------

absl::Status NewParts::Allocate(const ProgramState& state, MemberId self, const World& to) {
  const std::optional<uint32_t> slot = to.SlotOf(self);
  const auto slots = static_cast<uint32_t>(to.members.size());
  for (uint32_t t = 0; t < state.tensors.size(); ++t) {
    const state::PlacedTensor& now = state.tensors[t];
    targets_.push_back(now.place);
    if (!slot) continue;
    const state::Box box = state::PartOf(now.shape, slots, *slot);
    if (box == now.part) continue;
    if (cancelled_()) return absl::CancelledError("the transition was aborted");
    REWIRE_RETURN_IF_ERROR(AllocateOne(state, t, box));
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

absl::StatusOr<ResolvedPlan> ResolvePlan(const state::Plan& plan, MemberId self,
                                         const Worlds& worlds, const StateSources& sources,
                                         const std::vector<state::StatePlace>& targets) {
  ResolvedPlan resolved;
  const std::optional<uint32_t> slot = worlds.to.SlotOf(self);
  for (const state::BoxCopy& copy : plan.copies) {
    if (copy.source != self && copy.target != self) continue;
    const state::TensorShape& shape = sources.tensors[copy.tensor].shape;
    const uint64_t begin = copy.box.begin * shape.element_bytes;
    const uint64_t end = copy.box.end * shape.element_bytes;
    const auto in_part = [&](const World& world, uint32_t of) {
      const auto slots = static_cast<uint32_t>(world.members.size());
      const uint64_t part = state::PartOf(shape, slots, of).begin * shape.element_bytes;
      return state::Runs(begin - part, end - begin);
    };
    state::StateRuns place;
    if (copy.target == self) {
      place = {targets[copy.tensor], in_part(worlds.to, *slot)};
      if (!copy.local()) {
        const bool late = shape.change != state::Change::kConstant;
        const std::optional<uint32_t> of = worlds.from.SlotOf(copy.source);
        // Copies of a snapshot are in no part, and nobody maps them.
        const state::Runs from = of && copy.origin == state::Origin::kLive
                                     ? in_part(worlds.from, *of)
                                     : state::Runs(0, end - begin);
        resolved.incoming.push_back({copy.tensor, begin, end, copy.source, from, place, late});
        continue;
      }
    }
    REWIRE_ASSIGN_OR_RETURN(const state::StatePlace source, SourceOf(copy, sources));
    // The part stays at its address.
    if (copy.local() && source.data == place.place().data) continue;
    state::Outgoing out;
    out.tensor = copy.tensor;
    out.begin = begin;
    out.end = end;
    out.source = {source, state::Runs(0, end - begin)};
    out.local = copy.local();
    out.place = place;
    if (!out.local) out.target = worlds.to.members[*worlds.to.SlotOf(copy.target)];
    resolved.outgoing.push_back(out);
  }
  return resolved;
}

absl::Status CheckKept(const state::Plan& plan, MemberId self, const state::SnapshotSlots& kept,
                       uint64_t version) {
  std::set<uint32_t> taken;
  for (const state::BoxCopy& copy : plan.copies) {
    if (copy.source == self && copy.origin == state::Origin::kBuddySnapshot) {
      taken.insert(copy.tensor);
    }
  }
  const std::vector<uint32_t> tensors(taken.begin(), taken.end());
  if (kept.HasWhole(version, tensors)) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("restore version ", version,
                   ": the lost member's process still lives and has changed its copies"));
}

}  // namespace rewire::elastic
