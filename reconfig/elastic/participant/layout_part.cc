// Implements rewireLayoutPart() of the C interface. Thread-safe.
#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "reconfig/api/arguments.h"
#include "reconfig/base/cancellation.h"
#include "reconfig/elastic/participant/parsed_layout.h"
#include "rewire/rewire.h"

namespace rewire::elastic {
namespace {

static_assert(state::kMaxDims == rewireMaxDims);

void Fill(const state::ParallelLayout& layout, size_t tensor, uint32_t slot, rewirePart_t* part,
          rewirePiece_t* pieces, uint32_t capacity) {
  const std::vector<uint64_t> shape = layout.ShapeOf(tensor, slot);
  const std::vector<state::Piece> all = layout.PiecesOf(tensor, slot);
  *part = {part->size, layout.ElementsOf(tensor, slot), {}, 0, 0, 0, 0};
  std::copy(shape.begin(), shape.end(), part->shape);
  part->dims = static_cast<uint32_t>(shape.size());
  part->tensor_dims = static_cast<uint32_t>(layout.tensors()[tensor].shape.size());
  part->pieces = static_cast<uint32_t>(all.size());
  for (size_t i = 0; i < std::min<size_t>(capacity, all.size()); ++i) {
    std::copy(all[i].chunk.begin.begin(), all[i].chunk.begin.end(), pieces[i].begin);
    std::copy(all[i].chunk.end.begin(), all[i].chunk.end.end(), pieces[i].end);
    std::copy(all[i].strides.begin(), all[i].strides.end(), pieces[i].strides);
    pieces[i].offset = all[i].offset;
  }
}

}  // namespace
}  // namespace rewire::elastic

extern "C" rewireResult_t rewireLayoutPart(const char* layout, const char* tensor, uint32_t slot,
                                           rewirePart_t* part, rewirePiece_t* pieces,
                                           uint32_t capacity) noexcept {
  const rewire::PostponedCancellation postponed;
  rewire::Arguments arguments("rewireLayoutPart");
  arguments.NotNull("layout", layout).NotNull("tensor", tensor);
  arguments.Sized("part", "rewirePart_t", part);
  if (capacity > 0) arguments.NotNull("pieces", pieces);
  if (arguments.result() != rewireSuccess) return arguments.result();
  const auto wrong = [](const std::string& reason) {
    return rewire::Fail(rewireInvalidArgument, absl::StrCat("rewireLayoutPart: ", reason));
  };
  const auto parsed = rewire::elastic::Parsed(layout);
  if (!parsed.ok()) return wrong(std::string(parsed.status().message()));
  const auto found = (*parsed)->tensors.find(tensor);
  if (found == (*parsed)->tensors.end()) {
    return wrong(absl::StrCat("tensor ", tensor, ": is not in the layout"));
  }
  const uint32_t slots = (*parsed)->layout.slots();
  if (slot >= slots) {
    return wrong(absl::StrCat("slot=", slot, ": must be below ", slots, ", the layout's slots"));
  }
  rewire::elastic::Fill((*parsed)->layout, found->second, slot, part, pieces, capacity);
  return rewireSuccess;
}
