#include "reconfig/state/topo/runs.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/unit/state/topo/any_layout.h"

namespace rewire::state {
namespace {

// The offsets in memory of the packed bytes [from, from + bytes), relative to the part's begin.
std::vector<uint64_t> Offsets(const Runs& runs, uint64_t from, uint64_t bytes) {
  std::vector<uint64_t> offsets;
  runs.ForEach(from, bytes,
               [&](uint64_t offset, uint64_t at, uint64_t n, uint64_t pitch, uint64_t rows) {
                 EXPECT_EQ(at, offsets.size());
                 for (uint64_t row = 0; row < rows; ++row) {
                   for (uint64_t i = 0; i < n; ++i) {
                     offsets.push_back(runs.begin() + offset + row * pitch + i);
                   }
                 }
               });
  return offsets;
}

// The same from the definition of a piece, element by element.
std::vector<uint64_t> Expected(const Piece& piece, const Chunk& chunk, uint64_t element_bytes) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < chunk.elements(); ++i) {
    uint64_t rest = i;
    uint64_t element = piece.offset;
    for (size_t d = chunk.dims; d-- > 0; rest /= chunk.size(d)) {
      const uint64_t x = chunk.begin[d] + rest % chunk.size(d);
      element += (x - piece.chunk.begin[d]) * piece.strides[d];
    }
    for (uint64_t b = 0; b < element_bytes; ++b) offsets.push_back(element * element_bytes + b);
  }
  return offsets;
}

TEST(RunsTest, AreTheBytesOfTheChunkInItsOrder) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    AnyLayout any(seed);
    const ParallelLayout layout = any.NewPair().first;
    const auto slot = static_cast<uint32_t>(any.In(0, layout.slots() - 1));
    for (size_t tensor = 0; tensor < layout.tensors().size(); ++tensor) {
      for (const Piece& piece : layout.PiecesOf(tensor, slot)) {
        Chunk chunk = piece.chunk;
        for (size_t d = 0; d < chunk.dims; ++d) {
          chunk.begin[d] = any.In(piece.chunk.begin[d], piece.chunk.end[d] - 1);
          chunk.end[d] = any.In(chunk.begin[d] + 1, piece.chunk.end[d]);
        }
        const uint64_t element_bytes = any.In(1, 4);
        const Runs runs(piece, chunk, element_bytes);
        const std::vector<uint64_t> expected = Expected(piece, chunk, element_bytes);
        ASSERT_EQ(runs.bytes(), expected.size());
        ASSERT_EQ(Offsets(runs, 0, runs.bytes()), expected) << "seed " << seed;
        const uint64_t from = any.In(0, runs.bytes());
        const uint64_t bytes = any.In(0, runs.bytes() - from);
        ASSERT_EQ(Offsets(runs, from, bytes),
                  std::vector<uint64_t>(expected.begin() + static_cast<int64_t>(from),
                                        expected.begin() + static_cast<int64_t>(from + bytes)));
      }
    }
  }
}

TEST(RunsTest, AdjacentBytesAreOneRun) {
  const Piece whole{Chunk::Whole(std::vector<uint64_t>{4, 6, 8}), 0, {48, 8, 1}};
  EXPECT_TRUE(Runs(whole, whole.chunk, 2).contiguous());
  EXPECT_EQ(Runs(whole, whole.chunk, 2).run(), 4u * 6 * 8 * 2);
  Chunk columns = whole.chunk;
  columns.begin[2] = 4;
  const Runs runs(whole, columns, 2);
  EXPECT_EQ(runs.run(), 8u);
  EXPECT_EQ(runs.begin(), 8u);
  // All 24 rows have one distance, so they are one visit.
  int visits = 0;
  runs.ForEach(0, runs.bytes(), [&](uint64_t, uint64_t, uint64_t n, uint64_t pitch, uint64_t rows) {
    ++visits;
    EXPECT_EQ(n, 8u);
    EXPECT_EQ(pitch, 16u);
    EXPECT_EQ(rows, 24u);
  });
  EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace rewire::state
