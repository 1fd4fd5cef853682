#include "reconfig/elastic/participant/program_state.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/status_macros.h"
#include "reconfig/elastic/participant/parsed_layout.h"
#include "reconfig/state/plan/data_parallel.h"
#include "reconfig/state/plan/program_layout.h"

namespace rewire::elastic {
namespace {

// Returns the layout's text.
absl::StatusOr<std::string> AskProgram(const ProgramState& state, uint32_t slots) {
  const ProgramCalls::Call call(state.calls);
  if (!call.allowed()) return ProgramEnding();
  // The thread of a change that was called off may still be here.
  static Mutex* const one_call = new Mutex;
  MutexLock lock(one_call);
  const char* const text = state.callbacks.layout(state.callbacks.arg, slots);
  if (text != nullptr) return std::string(text);
  return absl::FailedPreconditionError(absl::StrCat(
      "layout of ", slots, " slots: the layout callback returned NULL: the program has none"));
}

}  // namespace

absl::StatusOr<SharedLayout> LayoutOf(const ProgramState& state, uint32_t slots) {
  std::vector<state::TensorShape> shapes;
  for (const state::PlacedTensor& tensor : state.tensors) shapes.push_back(tensor.shape);
  absl::StatusOr<state::ParallelLayout> layout = absl::UnknownError("");
  if (state.callbacks.layout == nullptr) {
    layout = state::DataParallel(shapes, slots);
  } else {
    REWIRE_ASSIGN_OR_RETURN(const std::string text, AskProgram(state, slots));
    layout = state::ProgramLayout(shapes, slots, text);
  }
  if (!layout.ok()) return layout.status();
  return std::make_shared<const state::ParallelLayout>(*std::move(layout));
}

absl::StatusOr<state::Parallel> DivisionOf(const ProgramState& state, uint32_t slots) {
  state::Parallel parallel;
  parallel.data = slots;
  if (state.callbacks.layout == nullptr) return parallel;
  REWIRE_ASSIGN_OR_RETURN(const std::string text, AskProgram(state, slots));
  REWIRE_ASSIGN_OR_RETURN(const ParsedLayout* const parsed, Parsed(text.c_str()));
  parallel = parsed->layout.parallel();
  if (parallel.slots() == slots) return parallel;
  return absl::InvalidArgumentError(
      absl::StrCat("layout of ", slots, " slots: has ", parallel.slots(), ": must be the world's"));
}

bool SamePart(const state::ParallelLayout& from, uint32_t from_slot,
              const state::ParallelLayout& to, uint32_t to_slot, uint32_t tensor) {
  return from.ElementsOf(tensor, from_slot) == to.ElementsOf(tensor, to_slot) &&
         from.PiecesOf(tensor, from_slot) == to.PiecesOf(tensor, to_slot);
}

state::Box PartIn(const state::ParallelLayout& layout, uint32_t slot,
                  const state::TensorShape& shape, uint32_t tensor) {
  if (shape.division == state::Division::kSharded) {
    return state::ShardOf(shape.elements, layout.slots(), slot);
  }
  return {0, layout.ElementsOf(tensor, slot)};
}

}  // namespace rewire::elastic
