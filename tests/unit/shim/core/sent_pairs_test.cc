#include "shim/core/sent_pairs.h"

#include <gtest/gtest.h>

#include <memory>

namespace rewire::shim {
namespace {

// A communicator whose program has sent to some ranks of a world of `ranks`.
struct Sender {
  Sender(int ranks, std::initializer_list<int> to)
      : counters(std::make_unique<PeerCounters[]>(static_cast<size_t>(ranks))) {
    for (const int peer : to) counters[static_cast<size_t>(peer)].sent.store(3);
    comm.peers.store(counters.get());
    comm.peer_count.store(ranks);
  }
  std::unique_ptr<PeerCounters[]> counters;
  VirtualCommunicator comm;
};

TEST(SentPairsTest, TablesOfAllRanksAddUp) {
  SentPairs sum(10);
  EXPECT_TRUE(sum.empty());
  for (uint32_t rank = 0; rank < 10; ++rank) {
    const Sender ring(10, {static_cast<int>(rank + 1) % 10});
    SentPairs own(10);
    own.AddSentBy(ring.comm, rank);
    for (size_t i = 0; i < sum.bytes().size(); ++i) sum.bytes()[i] += own.bytes()[i];
  }
  for (uint32_t from = 0; from < 10; ++from) {
    for (uint32_t to = 0; to < 10; ++to) EXPECT_EQ(sum.Has(from, to), to == (from + 1) % 10);
  }
}

TEST(SentPairsTest, SendsToItselfAreLeftOut) {
  const Sender sender(4, {1, 2});
  SentPairs pairs(4);
  pairs.AddSentBy(sender.comm, 1);
  EXPECT_TRUE(pairs.Has(1, 2));
  EXPECT_FALSE(pairs.Has(1, 1));
}

TEST(SentPairsTest, SendsInAWorldOfAnotherSizeAreLeftOut) {
  const Sender sender(8, {1, 2, 7});
  for (const uint32_t ranks : {4U, 9U}) {
    SentPairs pairs(ranks);
    pairs.AddSentBy(sender.comm, 0);
    EXPECT_TRUE(pairs.empty());
  }
}

TEST(SentPairsTest, CountsThePeersOfTheBusiestRank) {
  SentPairs pairs(6);
  EXPECT_EQ(pairs.MostOfARank(), 0u);
  for (uint32_t rank = 1; rank < 5; ++rank) pairs.AddSentBy(Sender(6, {0}).comm, rank);
  EXPECT_EQ(pairs.MostOfARank(), 4u);
}

TEST(SentPairsTest, AllToAllSendsToAllOthers) {
  VirtualCommunicator comm;
  comm.seen[static_cast<unsigned>(Collective::kAlltoAll)][ncclInt8].store(1);
  SentPairs pairs(9);
  pairs.AddSentBy(comm, 8);
  for (uint32_t to = 0; to < 9; ++to) EXPECT_EQ(pairs.Has(8, to), to != 8);
}

TEST(SentPairsTest, ALargeWorldHasNoTable) {
  const Sender sender(2, {1});
  SentPairs pairs(SentPairs::kMostRanks + 1);
  pairs.AddSentBy(sender.comm, 0);
  EXPECT_TRUE(pairs.empty());
  EXPECT_EQ(pairs.bytes().size(), 1u);
  EXPECT_EQ(pairs.ranks(), 0u);
}

}  // namespace
}  // namespace rewire::shim
