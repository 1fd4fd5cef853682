#include "reconfig/base/hash.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace rewire {
namespace {

std::vector<unsigned char> Pattern(size_t bytes) {
  std::vector<unsigned char> v(bytes);
  std::iota(v.begin(), v.end(), static_cast<unsigned char>(3));
  return v;
}

TEST(ContentHash, FragmentsInAnyOrderSumToTheWhole) {
  const auto v = Pattern(8 * 100 + 5);
  const uint64_t whole = ContentHash(v.data(), v.size(), 0);
  for (size_t cut : {size_t{0}, size_t{8}, size_t{400}, size_t{800}}) {
    EXPECT_EQ(ContentHash(v.data() + cut, v.size() - cut, cut) + ContentHash(v.data(), cut, 0),
              whole);
  }
}

TEST(ContentHash, AnyBitFlipChangesIt) {
  auto v = Pattern(61);
  const uint64_t whole = ContentHash(v.data(), v.size(), 0);
  for (size_t bit = 0; bit < v.size() * 8; ++bit) {
    v[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
    EXPECT_NE(ContentHash(v.data(), v.size(), 0), whole) << bit;
    v[bit / 8] ^= static_cast<unsigned char>(1u << (bit % 8));
  }
}

TEST(ContentHash, PositionMatters) {
  auto v = Pattern(32);
  const uint64_t whole = ContentHash(v.data(), v.size(), 0);
  std::swap_ranges(v.begin(), v.begin() + 8, v.begin() + 16);
  EXPECT_NE(ContentHash(v.data(), v.size(), 0), whole) << "two words changed places";
  EXPECT_NE(ContentHash(v.data(), 8, 0), ContentHash(v.data(), 8, 8)) << "same word, other place";
}

TEST(ContentHash, DetectsDroppedZeros) {
  const std::vector<unsigned char> zeros(64);
  EXPECT_NE(ContentHash(zeros.data(), 64, 0), ContentHash(zeros.data(), 56, 0));
}

}  // namespace
}  // namespace rewire
