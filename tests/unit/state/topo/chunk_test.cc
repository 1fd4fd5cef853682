#include "reconfig/state/topo/chunk.h"

#include <gtest/gtest.h>

#include <set>

namespace rewire::state {
namespace {

using Shape = std::vector<uint64_t>;

std::vector<std::vector<uint64_t>> Points(const Chunk& chunk) {
  std::vector<std::vector<uint64_t>> points;
  for (uint64_t i = 0; i < chunk.elements(); ++i) {
    std::vector<uint64_t> point(chunk.dims);
    uint64_t rest = i;
    for (size_t d = chunk.dims; d-- > 0;) {
      point[d] = chunk.begin[d] + rest % chunk.size(d);
      rest /= chunk.size(d);
    }
    points.push_back(point);
  }
  return points;
}

TEST(ChunkTest, AnIntervalIsFewChunksInRowMajorOrder) {
  const Chunk whole = Chunk::Whole(Shape{3, 2, 4});
  const auto all = Points(whole);
  for (uint64_t begin = 0; begin <= 24; ++begin) {
    for (uint64_t end = begin; end <= 24; ++end) {
      std::vector<Chunk> chunks;
      AppendInterval(whole, begin, end, &chunks);
      EXPECT_LE(chunks.size(), 5u);
      std::vector<std::vector<uint64_t>> points;
      for (const Chunk& chunk : chunks) {
        for (const auto& point : Points(chunk)) points.push_back(point);
      }
      EXPECT_EQ(points, std::vector(all.begin() + static_cast<ptrdiff_t>(begin),
                                    all.begin() + static_cast<ptrdiff_t>(end)));
    }
  }
}

TEST(ChunkTest, IntersectionAndDifferenceHaveEveryElementOnce) {
  const Chunk whole = Chunk::Whole(Shape{3, 3});
  for (uint64_t code = 0; code < 6 * 6 * 6 * 6; ++code) {
    Chunk other = whole;
    uint64_t rest = code;
    for (size_t d = 0; d < 2; ++d) {
      other.begin[d] = rest % 6;
      rest /= 6;
      other.end[d] = other.begin[d] + rest % 6;
      rest /= 6;
    }
    const Chunk both = Intersection(whole, other);
    if (both.empty()) continue;
    std::multiset<std::vector<uint64_t>> points;
    for (const auto& point : Points(both)) points.insert(point);
    for (const Chunk& chunk : Difference(whole, both)) {
      for (const auto& point : Points(chunk)) points.insert(point);
    }
    const auto all = Points(whole);
    EXPECT_EQ(points, std::multiset(all.begin(), all.end())) << Text(other);
  }
}

TEST(ChunkTest, TextHasTheOffsets) { EXPECT_EQ(Text(Chunk::Whole(Shape{2, 5})), "[0:2, 0:5]"); }

}  // namespace
}  // namespace rewire::state
