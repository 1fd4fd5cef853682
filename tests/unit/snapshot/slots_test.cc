// Two versions of a slot's state in memory: what is whole, what is not, what is refused.
#include "reconfig/snapshot/slots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "reconfig/stream/content.h"

namespace rewire {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SlotsTest : public ::testing::Test {
 protected:
  // Elements 2..4 of 4 bytes, nothing of the second tensor, elements 0..3 of 1 byte.
  SlotsTest() { slots_.Reset({{2, 4}, {}, {0, 3}}, {4, 8, 1}); }
  absl::Status Put(uint64_t version, uint32_t tensor, uint64_t offset, const std::string& bytes) {
    return slots_.Put(version, tensor, offset, bytes,
                      HashContent(bytes.data(), bytes.size(), offset));
  }
  void Fill(uint64_t version) {
    EXPECT_TRUE(Put(version, 0, 8, "abcd").ok());
    EXPECT_TRUE(Put(version, 0, 12, "efgh").ok());
    EXPECT_TRUE(Put(version, 2, 0, "xyz").ok());
  }
  SnapshotSlots slots_;
};

TEST_F(SlotsTest, AVersionIsWholeWhenEveryByteHasCome) {
  EXPECT_EQ(slots_.bytes(), 11u);
  EXPECT_TRUE(Put(5, 0, 12, "efgh").ok());
  EXPECT_TRUE(Put(5, 2, 0, "xyz").ok());
  EXPECT_FALSE(slots_.Arrived(5));
  EXPECT_THAT(slots_.WholeVersions(), IsEmpty());
  EXPECT_TRUE(Put(5, 0, 8, "abcd").ok());
  EXPECT_TRUE(slots_.Arrived(5));
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
  EXPECT_EQ(std::string(slots_.Piece(5, 0), 8), "abcdefgh");
  EXPECT_EQ(slots_.Piece(6, 0), nullptr);
  EXPECT_EQ(slots_.Piece(5, 3), nullptr);
}

TEST_F(SlotsTest, TheNewestTwoAreKeptAndOlderOnesRefused) {
  Fill(5);
  Fill(6);
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5, 6));
  EXPECT_FALSE(Put(4, 2, 0, "xyz").ok());
  EXPECT_TRUE(Put(7, 2, 0, "xyz").ok());  // 5 goes with the first byte of 7
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(6));
  EXPECT_EQ(slots_.Piece(5, 0), nullptr);
}

TEST_F(SlotsTest, ChangedBytesAreNotAWholeVersion) {
  Fill(5);
  Fill(6);
  const_cast<char*>(slots_.Piece(6, 0))[5] ^= 1;
  EXPECT_TRUE(slots_.Arrived(6));
  EXPECT_THAT(slots_.WholeVersions(), ElementsAre(5));
}

TEST_F(SlotsTest, WhatIsNotOfThisSlotOrComesTwiceIsRefused) {
  EXPECT_FALSE(Put(5, 3, 0, "x").ok());
  EXPECT_FALSE(Put(5, 0, 4, "abcd").ok());
  EXPECT_FALSE(Put(5, 0, 12, "efghi").ok());
  EXPECT_FALSE(Put(5, 0, UINT64_MAX, "a").ok());
  EXPECT_FALSE(Put(5, 1, 0, "x").ok());
  EXPECT_TRUE(Put(5, 2, 0, "xy").ok());
  EXPECT_FALSE(Put(5, 2, 1, "yz").ok());
  EXPECT_THAT(slots_.WholeVersions(), IsEmpty());
}

}  // namespace
}  // namespace rewire
