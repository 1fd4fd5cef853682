// The fast content hash equals the definition in base.
#include "reconfig/state/stream/content.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "reconfig/base/hash.h"

namespace rewire::state {
namespace {

TEST(ContentTest, MatchesHashOfBase) {
  std::vector<char> bytes(1000);
  std::iota(bytes.begin(), bytes.end(), 0);
  for (size_t n = 0; n < 200; ++n) {
    EXPECT_EQ(HashContent(bytes.data(), n, 64), ContentHash(bytes.data(), n, 64)) << n;
  }
}

}  // namespace
}  // namespace rewire::state
