#include "reconfig/state/topo/runs.h"

namespace rewire::state {

Runs::Runs(const Piece& piece, const Chunk& chunk, uint64_t element_bytes) : run_(element_bytes) {
  begin_ = piece.offset * element_bytes;
  for (size_t d = chunk.dims; d-- > 0;) {
    const uint64_t stride = piece.strides[d] * element_bytes;
    begin_ += (chunk.begin[d] - piece.chunk.begin[d]) * stride;
    if (chunk.size(d) == 1) continue;
    // Adjacent bytes become one run, and equal distances one level.
    if (depth_ == 0 && stride == run_) {
      run_ *= chunk.size(d);
    } else if (depth_ > 0 && stride == levels_[depth_ - 1].count * levels_[depth_ - 1].stride) {
      levels_[depth_ - 1].count *= chunk.size(d);
    } else {
      levels_[depth_++] = {chunk.size(d), stride};
    }
  }
}

uint64_t Runs::end() const {
  uint64_t end = begin_ + run_;
  for (uint32_t i = 0; i < depth_; ++i) end += (levels_[i].count - 1) * levels_[i].stride;
  return end;
}

uint64_t Runs::bytes() const {
  uint64_t bytes = run_;
  for (uint32_t i = 0; i < depth_; ++i) bytes *= levels_[i].count;
  return bytes;
}

}  // namespace rewire::state
