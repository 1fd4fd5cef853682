#include "net_plugin/verbs/offer.h"

#include <gtest/gtest.h>

#include "net_plugin/verbs/immediate.h"

namespace rewire::net {
namespace {

Offer Sample() {
  Offer o;
  o.link_layer = rdma::LinkLayer::kEthernet;
  o.gid_type = rdma::GidType::kRoceV2;
  o.gid = rdma::Gid::OfIpv4(10, 0, 0, 1);
  o.lid = 7;
  o.mtu = 4096;
  o.speed_mbps = 400'000;
  o.ring = 0x123456789abcdef0;
  o.ring_rkey = 0xdeadbeef;
  o.queues = {{0x11, 0x22, {7, 9}}, {0xffffff, 0, {}}};
  return o;
}

TEST(OfferTest, RoundTrips) {
  const std::optional<Offer> o = DecodeOffer(Encode(Sample()));
  ASSERT_TRUE(o.has_value());
  EXPECT_EQ(Encode(*o), Encode(Sample()));
  EXPECT_EQ(o->gid, Sample().gid);
  EXPECT_EQ(o->queues[1].number, 0xffffffU);
  EXPECT_EQ(o->queues[0].ece.vendor, 7U);
  EXPECT_EQ(o->queues[0].ece.options, 9U);
}

TEST(OfferTest, RejectsTruncatedOrLongerBytes) {
  const std::string bytes = Encode(Sample());
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(DecodeOffer(bytes.substr(0, n))) << n;
  EXPECT_FALSE(DecodeOffer(bytes + "x"));
}

TEST(OfferTest, RejectsInvalidValues) {
  Offer o = Sample();
  o.mtu = 1000;
  EXPECT_FALSE(DecodeOffer(Encode(o)));
  o = Sample();
  o.queues.clear();
  EXPECT_FALSE(DecodeOffer(Encode(o)));
  o.queues.resize(kMostQueuePairs + 1);
  EXPECT_FALSE(DecodeOffer(Encode(o)));
  o = Sample();
  o.queues[0].number = 1 << 24;
  EXPECT_FALSE(DecodeOffer(Encode(o)));
}

TEST(ReportTest, RoundTrips) {
  Received r;
  r.next = 9;
  r.receives = {{7, {1, 0}}, {8, {~uint64_t{0}}}};
  const std::optional<Received> received = DecodeReceived(Encode(r));
  ASSERT_TRUE(received.has_value());
  EXPECT_EQ(received->next, 9u);
  EXPECT_EQ(received->receives[1].pieces[0], ~uint64_t{0});
  r.receives[0].pieces.resize(9);
  EXPECT_FALSE(DecodeReceived(Encode(r)));
  const std::optional<Cleared> cleared = DecodeCleared(Encode(Cleared{5, 3}));
  ASSERT_TRUE(cleared.has_value());
  EXPECT_EQ(cleared->head, 5u);
  EXPECT_FALSE(DecodeCleared("x"));
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
