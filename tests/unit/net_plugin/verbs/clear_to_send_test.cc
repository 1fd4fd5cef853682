#include "net_plugin/verbs/clear_to_send.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace rewire::net {
namespace {

constexpr uint64_t kSequences[] = {0, 5, uint64_t{kMaxRequests} + 5, uint64_t{1} << 40};

// A receive of one buffer has its entry in another place than a receive of several.
TEST(ClearRingTest, ReadsAnEntryOnceItsLastWordIsWritten) {
  const auto ring = std::make_unique<ClearRing>();
  for (const uint32_t count : {1U, 2U}) {
    for (const uint64_t sequence : kSequences) {
      const uint64_t receive = sequence + count * uint64_t{2} * kMaxRequests;
      ClearToSend* const entry = ring->Entries(receive, count);
      EXPECT_FALSE(ring->Read(receive, 0));
      entry->address = receive * 3;
      entry->count = count;
      entry->mark = receive + 1;
      ASSERT_TRUE(ring->Read(receive, 0));
      EXPECT_EQ(ring->Read(receive, 0)->address, receive * 3);
      EXPECT_FALSE(ring->Read(receive, 1));
      // The entry is not valid for another receive in the same place.
      EXPECT_FALSE(ring->Read(receive + kMaxRequests, 0));
      EXPECT_EQ(ring->Whole(receive), count == 1);
      if (count == 2) (entry + 1)->mark = receive + 1;
      EXPECT_TRUE(ring->Whole(receive));
    }
  }
}

TEST(ClearRingTest, RejectsImpossibleCounts) {
  for (const uint32_t count : {uint32_t{1}, uint32_t{kMaxRecvs}}) {
    const auto ring = std::make_unique<ClearRing>();
    ring->Entries(0, count)->mark = 1;
    EXPECT_FALSE(ring->Whole(0));
    ring->Entries(0, count)->count = kMaxRecvs + 1;
    EXPECT_FALSE(ring->Whole(0));
  }
}

TEST(ClearRingTest, EntriesDoNotOverlap) {
  const auto ring = std::make_unique<ClearRing>();
  const auto* const begin = reinterpret_cast<char*>(ring.get());
  std::set<ptrdiff_t> places;
  for (uint64_t s = 0; s < kMaxRequests; ++s) {
    for (const uint32_t count : {uint32_t{1}, uint32_t{kMaxRecvs}}) {
      const ptrdiff_t place = reinterpret_cast<char*>(ring->Entries(s, count)) - begin;
      EXPECT_EQ(place, static_cast<ptrdiff_t>(ClearRing::OffsetOf(s, count)));
      for (uint32_t part = 0; part < count; ++part) {
        EXPECT_TRUE(
            places.insert(place + static_cast<ptrdiff_t>(part * sizeof(ClearToSend))).second);
      }
    }
    EXPECT_EQ(reinterpret_cast<char*>(ring->Total(s, 3)) - begin,
              static_cast<ptrdiff_t>(ClearRing::OffsetOfTotal(s, 3)));
  }
  EXPECT_EQ(ClearRing::OffsetOf(kMaxRequests, 1), ClearRing::OffsetOf(0, 1));
  EXPECT_GE(ClearRing::OffsetOfTotal(0, 0), places.size() * sizeof(ClearToSend));
}

TEST(ClearRingTest, ReceivesOfOneBufferAreAdjacent) {
  EXPECT_EQ(ClearRing::OffsetOf(1, 1), sizeof(ClearToSend));
  EXPECT_EQ(ClearRing::Bytes(4, 8, 1), 4 * sizeof(ClearToSend));
  EXPECT_EQ(ClearRing::Bytes(4, 6, 3), (kMaxRecvs + 3) * sizeof(ClearToSend));
}

TEST(ImmediateTest, RoundTrips) {
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{31}, kSequenceMask, kSequenceMask + 5}) {
    for (const uint32_t piece : {0U, 21U, 63U}) {
      const Immediate i = Unpack(Pack({sequence, 7, piece, piece == 21, piece == 63}));
      EXPECT_EQ(i.sequence, sequence & kSequenceMask);
      EXPECT_EQ(i.part, 7u);
      EXPECT_EQ(i.piece, piece);
      EXPECT_EQ(i.apart, piece == 21);
      EXPECT_EQ(i.last, piece == 63);
    }
  }
}

}  // namespace
}  // namespace rewire::net
