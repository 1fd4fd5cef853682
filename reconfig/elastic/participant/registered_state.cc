// Keeps and compares registered tensors; see registered_state.h. Thread-safe.
#include "reconfig/elastic/participant/registered_state.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/participant/shape_list.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/state_memory.h"

namespace rewire::elastic {
namespace {

// The number of applied updates, transferred like any other state.
constexpr const char* kUpdatesTensor = "rewire/updates";

// Returns the first property that differs.
std::string Difference(const state::TensorShape& mine, const state::TensorShape& theirs) {
  const auto differs = [](const char* property, const auto& here, const auto& there) {
    return absl::StrCat(property, "=", here, " instead of ", there);
  };
  if (mine.name != theirs.name) return differs("name", mine.name, theirs.name);
  if (mine.elements != theirs.elements) return differs("elements", mine.elements, theirs.elements);
  if (mine.element_bytes != theirs.element_bytes) {
    return differs("element_bytes", mine.element_bytes, theirs.element_bytes);
  }
  if (mine.division != theirs.division) {
    constexpr const char* kNames[] = {"rewireReplicated", "rewireSharded", "rewireByLayout"};
    return differs("layout", kNames[static_cast<size_t>(mine.division)],
                   kNames[static_cast<size_t>(theirs.division)]);
  }
  constexpr const char* kNames[] = {"rewireConstant", "rewireVolatile", "rewireTransient"};
  return differs("change", kNames[static_cast<size_t>(mine.change)],
                 kNames[static_cast<size_t>(theirs.change)]);
}

bool Has(const std::vector<state::TensorShape>& shapes, const std::string& name) {
  return std::any_of(shapes.begin(), shapes.end(),
                     [&](const state::TensorShape& t) { return t.name == name; });
}

// Returns the reason for which two members' tensors differ; "": they are equal.
std::string Mismatch(const std::vector<state::TensorShape>& mine, MemberId self,
                     const std::vector<state::TensorShape>& theirs, MemberId other) {
  const auto missing = [](const std::string& name, MemberId has, MemberId lacks) {
    return absl::StrCat("tensor ", name, " is registered by member ", has, ", and member ", lacks,
                        " does not register it");
  };
  for (size_t i = 0; i < std::max(mine.size(), theirs.size()); ++i) {
    const bool in_mine = i < mine.size();
    const bool in_theirs = i < theirs.size();
    if (in_mine && in_theirs && mine[i] == theirs[i]) continue;
    const bool rewires = i == 0 && mine.size() + theirs.size() > 1;  // Rewire's own tensor
    if (rewires && in_mine != in_theirs) continue;
    if (in_mine && !Has(theirs, mine[i].name)) return missing(mine[i].name, self, other);
    if (in_theirs && !Has(mine, theirs[i].name)) return missing(theirs[i].name, other, self);
    if (!in_mine || !in_theirs) {
      return absl::StrCat("member ", self, " registers tensors=", mine.size(), ", and member ",
                          other, " tensors=", theirs.size());
    }
    return absl::StrCat("tensor ", mine[i].name, " is registered by member ", self,
                        " differently from member ", other, ": ", Difference(mine[i], theirs[i]));
  }
  return "";
}

// Asks a member for its tensors until it has registered them, or for `patience`. Fails when the
// member does not answer.
absl::StatusOr<std::optional<std::string>> ShapesOf(const WorldMember& member, const Names& names,
                                                    Duration patience,
                                                    const std::function<bool()>& ended) {
  absl::StatusOr<std::optional<std::string>> answer;
  Mutex pause_mutex;
  CondVar pause;
  const Time deadline = Now() + patience;
  do {  // a member answers from its first update on
    answer = names.Ask(member, kShapesName);
    MutexLock lock(&pause_mutex);
    if (answer.ok() && !*answer) pause.WaitUntil(&pause_mutex, Now() + milliseconds(10));
  } while (answer.ok() && !*answer && Now() < deadline && !ended());
  return answer;
}

// Fails unless the program has registered as much memory as the layout gives the slot.
absl::Status CheckElements(const state::PlacedTensor& tensor, const state::ParallelLayout& layout,
                           uint32_t slot, uint32_t number) {
  const uint64_t elements = layout.ElementsOf(number, slot);
  if (tensor.part.size() == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "tensor ", tensor.shape.name, ": elements=", tensor.part.size(), ": must be ", elements,
      ", the size of slot ", slot, "'s memory in the layout of ", layout.slots(), " slots"));
}

}  // namespace

void RegisteredState::SetCallbacks(const rewireCallbacks_t& callbacks) {
  MutexLock lock(&mutex_);
  callbacks_ = callbacks;
}

rewireCallbacks_t RegisteredState::callbacks() const {
  MutexLock lock(&mutex_);
  return callbacks_;
}

void RegisteredState::AddTensor(state::PlacedTensor tensor) {
  MutexLock lock(&mutex_);
  if (tensors_.empty()) {
    state::PlacedTensor updates;
    // After a loss the tensor holds the restored version.
    updates.shape = {kUpdatesTensor, 1, sizeof *updates_, state::Division::kReplicated,
                     state::Change::kTransient};
    updates.part = {0, 1};
    updates.place.data = reinterpret_cast<char*>(updates_);
    tensors_.push_back(updates);
  }
  tensors_.push_back(std::move(tensor));
}

std::vector<state::PlacedTensor> RegisteredState::Tensors() const {
  MutexLock lock(&mutex_);
  return tensors_;
}

bool RegisteredState::HasTensors() const {
  MutexLock lock(&mutex_);
  return !tensors_.empty();
}

absl::Status RegisteredState::SetReady(uint32_t slots, uint32_t slot, Names* names) {
  if (layout() != nullptr) return absl::OkStatus();
  ProgramState state{false, Tensors(), callbacks(), &calls_, nullptr, slot};
  REWIRE_ASSIGN_OR_RETURN(SharedLayout layout, LayoutOf(state, slots));
  std::vector<state::TensorShape> shapes;
  for (uint32_t t = 0; t < state.tensors.size(); ++t) {
    state::PlacedTensor& tensor = state.tensors[t];
    if (tensor.shape.division == state::Division::kByLayout) {
      REWIRE_RETURN_IF_ERROR(CheckElements(tensor, *layout, slot, t));
      tensor.shape.elements = state::Chunk::Whole(layout->tensors()[t].shape).elements();
    }
    shapes.push_back(tensor.shape);
  }
  names->Publish(std::string(kShapesName), EncodeShapes(shapes));
  names->Publish(std::string(kNodeName), state::NodeIdentity());
  MutexLock lock(&mutex_);
  tensors_ = std::move(state.tensors);
  layout_ = std::move(layout);
  slot_ = slot;
  changed_.NotifyAll();
  return absl::OkStatus();
}

absl::StatusOr<state::Parallel> RegisteredState::ParallelOf(uint32_t slots) {
  const SharedLayout known = layout();
  if (known != nullptr && known->slots() == slots) return known->parallel();
  ProgramState state;
  state.callbacks = callbacks();
  state.calls = &calls_;
  return DivisionOf(state, slots);
}

SharedLayout RegisteredState::layout() const {
  MutexLock lock(&mutex_);
  return layout_;
}

std::optional<ProgramState> RegisteredState::WaitReady(Time deadline) {
  MutexLock lock(&mutex_);
  while (layout_ == nullptr) {
    if (!changed_.WaitUntil(&mutex_, deadline) && layout_ == nullptr) return std::nullopt;
  }
  return ProgramState{false, tensors_, callbacks_, &calls_, layout_, slot_};
}

absl::Status RegisteredState::CheckAllocations() const {
  for (const state::PlacedTensor& tensor : Tensors()) {
    REWIRE_RETURN_IF_ERROR(
        state::CheckAllocation(tensor.shape.name, tensor.place, tensor.allocation));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RegisteredState::CheckShapes(const World& from, MemberId self,
                                                  const Names& names, Duration patience,
                                                  const std::function<bool()>& ended) {
  std::vector<state::TensorShape> mine;
  if (const auto published = names.Find(kShapesName)) {
    REWIRE_ASSIGN_OR_RETURN(mine, DecodeShapes(*published));
  }
  if (from.members.empty() || from.members[0].member == self) return true;
  // A member lost meanwhile does not answer, and then the hashes of the plans still differ.
  for (const WorldMember& m : from.members) {
    if (m.member == self || m.data_address.empty()) continue;
    const auto answer = ShapesOf(m, names, patience, ended);
    if (!answer.ok() || !*answer) continue;
    REWIRE_ASSIGN_OR_RETURN(const std::vector<state::TensorShape> theirs, DecodeShapes(**answer));
    const std::string reason = Mismatch(mine, self, theirs, m.member);
    if (!reason.empty()) return absl::InvalidArgumentError(reason);
    return true;
  }
  return false;
}

state::PlacedTensor RegisteredState::Adopt(const NewPart& part) {
  MutexLock lock(&mutex_);
  state::PlacedTensor& tensor = tensors_[part.tensor];
  tensor.part = part.box;
  tensor.place = part.place;
  tensor.allocation = state::AllocationOf(part.place);
  return tensor;
}

void RegisteredState::EnterWorld(SharedLayout layout, uint32_t slot) {
  MutexLock lock(&mutex_);
  layout_ = std::move(layout);
  slot_ = slot;
}

bool RegisteredState::Discard(const std::vector<NewPart>& parts) {
  MutexLock lock(&mutex_);
  for (const NewPart& part : parts) {
    if (part.place.data == nullptr) continue;
    discards_.emplace_back(tensors_[part.tensor].shape.name, part.place.data);
  }
  return !discards_.empty();
}

void RegisteredState::RunDiscards() {
  std::vector<std::pair<std::string, void*>> discards;
  rewireCallbacks_t callbacks;
  {
    MutexLock lock(&mutex_);
    discards.swap(discards_);
    callbacks = callbacks_;
  }
  if (callbacks.discard == nullptr) return;
  for (const auto& [name, data] : discards) callbacks.discard(callbacks.arg, name.c_str(), data);
}

}  // namespace rewire::elastic
