// The sources of a change are hashed again at the boundary, each of them.
#include "reconfig/state/stream/outflow.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace rewire::state {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = 64;

class OutflowTest : public ::testing::Test {
 protected:
  // Returns a copy of 8 bytes inside this member. Every move of a tensor begins at byte 0 of what
  // its target gets.
  Outgoing Copy(uint64_t from, std::vector<char>* to) {
    Outgoing out;
    out.end = 8;
    out.source = {{MemoryKind::kHost, source_.data(), nullptr}, Runs(from, 8)};
    out.local = true;
    out.place = {{MemoryKind::kHost, to->data(), nullptr}, Runs(0, 8)};
    return out;
  }
  absl::Status Send(const std::vector<Outgoing>& outgoing) {
    return flow_.Send(outgoing, 1, /*remember=*/true, Now() + seconds(5));
  }

  std::vector<char> source_ = std::vector<char>(kBytes, 'a');
  std::vector<char> first_ = std::vector<char>(8);
  std::vector<char> second_ = std::vector<char>(8);
  Budget budget_{1 << 20};
  Outflow flow_{{}, nullptr, &budget_};
};

TEST_F(OutflowTest, ChecksEachSourceThatWasSent) {
  for (const uint64_t changed : {0u, 32u}) {
    ASSERT_TRUE(Send({Copy(0, &first_), Copy(32, &second_)}).ok());
    EXPECT_TRUE(flow_.Recheck().ok());
    source_[changed] = 'b';
    EXPECT_THAT(std::string(flow_.Recheck().message()), HasSubstr("changed outside the update"))
        << changed;
    source_[changed] = 'a';
  }
}

TEST_F(OutflowTest, FailsWhenTwoTargetsGotDifferentBytes) {
  ASSERT_TRUE(Send({Copy(0, &first_)}).ok());
  source_[0] = 'b';
  EXPECT_THAT(std::string(Send({Copy(0, &second_)}).message()),
              HasSubstr("changed outside the update"));
}

TEST_F(OutflowTest, RunsThatBeginAtOnePlaceAreDifferentSources) {
  const Piece piece{Chunk::Whole(std::vector<uint64_t>{4, 16}), 0, {16, 1}};
  Outgoing rows = Copy(0, &first_);  // two bytes of each row
  Chunk columns = piece.chunk;
  columns.end[1] = 2;
  rows.source.runs = Runs(piece, columns, 1);
  ASSERT_TRUE(Send({rows, Copy(0, &second_)}).ok());
  source_[17] = 'b';
  EXPECT_FALSE(flow_.Recheck().ok());
}

}  // namespace
}  // namespace rewire::state
