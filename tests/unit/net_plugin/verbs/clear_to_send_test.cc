#include "net_plugin/verbs/clear_to_send.h"

#include <gtest/gtest.h>

#include <memory>

namespace rewire::net {
namespace {

TEST(ClearRingTest, AnEntryCountsWhenItsLastWordSaysSo) {
  const auto ring = std::make_unique<ClearRing>();
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{5}, uint64_t{32 + 5}, uint64_t{1} << 40}) {
    ClearToSend* const entry = ring->Entries(sequence);
    EXPECT_FALSE(ring->Read(sequence, 0));
    entry->address = sequence * 3;
    entry->count = 2;
    entry->mark = sequence + 1;
    ASSERT_TRUE(ring->Read(sequence, 0));
    EXPECT_EQ(ring->Read(sequence, 0)->address, sequence * 3);
    // Neither the one before in the same place nor the one after.
    EXPECT_FALSE(ring->Read(sequence + kMaxRequests, 0));
    EXPECT_FALSE(ring->Whole(sequence));
    (entry + 1)->mark = sequence + 1;
    EXPECT_TRUE(ring->Whole(sequence));
  }
}

TEST(ClearRingTest, ACountThatCannotBeIsNeverWhole) {
  const auto ring = std::make_unique<ClearRing>();
  ring->Entries(0)->mark = 1;
  EXPECT_FALSE(ring->Whole(0));
  ring->Entries(0)->count = kMaxRecvs + 1;
  EXPECT_FALSE(ring->Whole(0));
}

TEST(ClearRingTest, PlacesDoNotOverlap) {
  const auto ring = std::make_unique<ClearRing>();
  for (uint64_t s = 0; s < kMaxRequests; ++s) {
    EXPECT_EQ(reinterpret_cast<char*>(ring->Entries(s)) - reinterpret_cast<char*>(ring.get()),
              static_cast<ptrdiff_t>(ClearRing::OffsetOf(s)));
  }
  EXPECT_EQ(ClearRing::OffsetOf(1), kMaxRecvs * sizeof(ClearToSend));
  EXPECT_EQ(ClearRing::OffsetOf(kMaxRequests), 0u);
}

}  // namespace
}  // namespace rewire::net
