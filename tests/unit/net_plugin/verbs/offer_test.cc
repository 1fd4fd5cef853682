#include "net_plugin/verbs/offer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

template <typename T>
std::string Why(const absl::StatusOr<T>& decoded) {
  return std::string(decoded.status().message());
}

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
  const absl::StatusOr<Offer> o = DecodeOffer(Encode(Sample()));
  ASSERT_TRUE(o.ok());
  EXPECT_EQ(Encode(*o), Encode(Sample()));
  EXPECT_EQ(o->gid, Sample().gid);
  EXPECT_EQ(o->queues[1].number, 0xffffffU);
  EXPECT_EQ(o->queues[0].ece.vendor, 7U);
  EXPECT_EQ(o->queues[0].ece.options, 9U);
}

TEST(OfferTest, RejectsTruncatedOrLongerBytes) {
  const std::string bytes = Encode(Sample());
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_FALSE(DecodeOffer(bytes.substr(0, n)).ok()) << n;
  EXPECT_FALSE(DecodeOffer(bytes + "x").ok());
}

TEST(OfferTest, RefusalNamesTheField) {
  Offer o = Sample();
  o.mtu = 1000;
  EXPECT_EQ(Why(DecodeOffer(Encode(o))),
            "malformed offer: MTU=1000: must be a power of two from 256 to 4096");
  o = Sample();
  o.queues.clear();
  EXPECT_EQ(Why(DecodeOffer(Encode(o))), "malformed offer: queue pairs=0: must be 1 to 16");
  o.queues.resize(kMostQueuePairs + 1);
  EXPECT_EQ(Why(DecodeOffer(Encode(o))), "malformed offer: queue pairs=17: must be 1 to 16");
  o = Sample();
  o.queues[0].number = 1 << 24;
  EXPECT_THAT(Why(DecodeOffer(Encode(o))), HasSubstr("queue pair=16777216 first packet=34: must"));
  std::string bytes = Encode(Sample());
  bytes[0] = 3;
  EXPECT_EQ(Why(DecodeOffer(bytes)), "malformed offer: link layer=3: must be 0 to 2");
  bytes[0] = 1;
  bytes[1] = 7;
  EXPECT_EQ(Why(DecodeOffer(bytes)), "malformed offer: GID type=7: must be 0 to 2");
}

TEST(ReportTest, RoundTrips) {
  Received r;
  r.next = 9;
  r.receives = {{7, {1, 0}}, {8, {~uint64_t{0}}}};
  const absl::StatusOr<Received> received = DecodeReceived(Encode(r));
  ASSERT_TRUE(received.ok());
  EXPECT_EQ(received->next, 9u);
  EXPECT_EQ(received->receives[1].pieces[0], ~uint64_t{0});
  r.receives[0].pieces.resize(9);
  EXPECT_EQ(Why(DecodeReceived(Encode(r))),
            "malformed report of the receiver: buffers=9: must be 1 to 8");
  const absl::StatusOr<Cleared> cleared = DecodeCleared(Encode(Cleared{5, 3}));
  ASSERT_TRUE(cleared.ok());
  EXPECT_EQ(cleared->head, 5u);
  EXPECT_EQ(Why(DecodeCleared("x")), "malformed report of the sender: bytes=1: must be 12");
}

}  // namespace
}  // namespace rewire::net
