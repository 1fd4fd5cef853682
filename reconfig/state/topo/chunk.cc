#include "reconfig/state/topo/chunk.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace rewire::state {
namespace {

Chunk Narrow(Chunk chunk, size_t dim, uint64_t first, uint64_t last) {
  chunk.end[dim] = chunk.begin[dim] + last;
  chunk.begin[dim] += first;
  return chunk;
}

// Appends the elements [begin, end) of the dimensions from `dim` on; those before have one element.
// Whole rows of `dim` are one chunk, and the parts of the rows around them are divided further.
void AppendRows(const Chunk& in, size_t dim, uint64_t begin, uint64_t end,
                std::vector<Chunk>* chunks) {
  if (begin >= end) return;
  uint64_t row = 1;
  for (size_t inner = dim + 1; inner < in.dims; ++inner) row *= in.size(inner);
  uint64_t first = begin / row;
  const uint64_t last = end / row;
  if (first == last) {
    return AppendRows(Narrow(in, dim, first, first + 1), dim + 1, begin - first * row,
                      end - first * row, chunks);
  }
  if (begin % row != 0) {
    AppendRows(Narrow(in, dim, first, first + 1), dim + 1, begin % row, row, chunks);
    ++first;
  }
  if (first < last) chunks->push_back(Narrow(in, dim, first, last));
  if (end % row != 0) AppendRows(Narrow(in, dim, last, last + 1), dim + 1, 0, end % row, chunks);
}

}  // namespace

Chunk Chunk::Whole(std::span<const uint64_t> shape) {
  Chunk chunk;
  chunk.dims = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), chunk.end.begin());
  return chunk;
}

uint64_t Chunk::elements() const {
  uint64_t product = 1;
  for (size_t d = 0; d < dims; ++d) product *= size(d);
  return product;
}

Chunk Intersection(const Chunk& a, const Chunk& b) {
  Chunk both = a;
  for (size_t d = 0; d < a.dims; ++d) {
    both.begin[d] = std::max(a.begin[d], b.begin[d]);
    both.end[d] = std::max(both.begin[d], std::min(a.end[d], b.end[d]));
  }
  return both;
}

void AppendInterval(const Chunk& whole, uint64_t begin, uint64_t end, std::vector<Chunk>* chunks) {
  AppendRows(whole, 0, begin, end, chunks);
}

std::vector<Chunk> Difference(const Chunk& whole, const Chunk& cut) {
  std::vector<Chunk> rest;
  Chunk middle = whole;
  for (size_t d = 0; d < whole.dims; ++d) {
    Chunk side = middle;
    side.end[d] = cut.begin[d];
    if (!side.empty()) rest.push_back(side);
    side = middle;
    side.begin[d] = cut.end[d];
    if (!side.empty()) rest.push_back(side);
    middle.begin[d] = cut.begin[d];
    middle.end[d] = cut.end[d];
  }
  return rest;
}

std::string Text(const Chunk& chunk) {
  std::string text = "[";
  for (size_t d = 0; d < chunk.dims; ++d) {
    absl::StrAppend(&text, d == 0 ? "" : ", ", chunk.begin[d], ":", chunk.end[d]);
  }
  return text + "]";
}

}  // namespace rewire::state
