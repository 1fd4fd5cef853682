// Offers of device memory, decoded from untrusted bytes.
#include "reconfig/state/stream/peer_offer.h"

#include <gtest/gtest.h>

namespace rewire::state {
namespace {

// One tensor of one segment of each kind.
PeerOffer SomeOffer() {
  OfferedSegment handle{OfferedSegment::Kind::kHandle, 1000, 24, 4096, {}, 0};
  handle.handle.reserved[63] = 'x';
  const OfferedSegment descriptor{OfferedSegment::Kind::kDescriptor, 500, 0, 500, {}, 9};
  return {12, "a node", "a server", {{7, {handle}}, {8, {descriptor, descriptor}}}};
}

TEST(PeerOfferTest, DecodesWhatWasEncoded) {
  const PeerOffer offer = DecodePeerOffer(EncodePeerOffer(SomeOffer())).value();
  EXPECT_EQ(offer.epoch, 12u);
  EXPECT_EQ(offer.node, "a node");
  EXPECT_EQ(offer.server, "a server");
  ASSERT_EQ(offer.tensors.size(), 2u);
  EXPECT_EQ(offer.tensors[0].tensor, 7u);
  EXPECT_EQ(offer.tensors[0].bytes(), 1000u);
  EXPECT_EQ(offer.tensors[0].segments.at(0).offset, 24u);
  EXPECT_EQ(offer.tensors[0].segments.at(0).allocation, 4096u);
  EXPECT_EQ(offer.tensors[0].segments.at(0).handle.reserved[63], 'x');
  EXPECT_EQ(offer.tensors[1].bytes(), 1000u);
  EXPECT_EQ(offer.tensors[1].segments.at(1).index, 9u);
}

TEST(PeerOfferTest, RefusesEveryTruncation) {
  const std::string whole = EncodePeerOffer(SomeOffer());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(DecodePeerOffer(whole.substr(0, n)).ok()) << n;
  }
}

TEST(PeerOfferTest, RefusesSegmentOutsideItsAllocation) {
  PeerOffer offer = SomeOffer();
  offer.tensors[0].segments[0].offset = 4000;
  EXPECT_FALSE(DecodePeerOffer(EncodePeerOffer(offer)).ok());
  offer.tensors[0].segments[0].offset = ~uint64_t{0};
  EXPECT_FALSE(DecodePeerOffer(EncodePeerOffer(offer)).ok());
}

}  // namespace
}  // namespace rewire::state
