// The offers, lists and notes of a transition, decoded from untrusted bytes.
#include <gtest/gtest.h>

#include "reconfig/state/stream/notes.h"
#include "reconfig/state/stream/peer_offer.h"
#include "reconfig/state/stream/pull.h"

namespace rewire::state {
namespace {

// One tensor of one segment of each kind.
PeerOffer SomeOffer() {
  OfferedSegment handle{OfferedSegment::Kind::kHandle, 1000, 24, 4096, {}, 0};
  handle.handle.reserved[63] = 'x';
  const OfferedSegment descriptor{OfferedSegment::Kind::kDescriptor, 500, 0, 500, {}, 9};
  return {12, "a node", "a server", {{7, {handle}}, {8, {descriptor, descriptor}}}};
}

TEST(PeerOfferBytes, RoundTrip) {
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

TEST(PeerOfferBytes, CutAnywhereAreRefused) {
  const std::string whole = EncodePeerOffer(SomeOffer());
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_FALSE(DecodePeerOffer(whole.substr(0, n)).ok()) << n;
  }
}

TEST(PeerOfferBytes, OfSegmentOutsideItsAllocationAreRefused) {
  PeerOffer offer = SomeOffer();
  offer.tensors[0].segments[0].offset = 4000;
  EXPECT_FALSE(DecodePeerOffer(EncodePeerOffer(offer)).ok());
  offer.tensors[0].segments[0].offset = ~uint64_t{0};
  EXPECT_FALSE(DecodePeerOffer(EncodePeerOffer(offer)).ok());
}

TEST(ListBytes, CutAnywhereAreRefused) {
  const CopyContent content{1, 2, 3};
  const std::string contents = EncodeContents({&content, 1});
  const uint32_t tensor = 4;
  const std::string tensors = EncodeTensors({&tensor, 1});
  EXPECT_EQ(DecodeContents(contents)->at(0).content, 3u);
  EXPECT_EQ(DecodeTensors(tensors)->at(0), 4u);
  for (size_t n = 0; n < contents.size(); ++n) {
    EXPECT_FALSE(DecodeContents(contents.substr(0, n)).ok()) << n;
  }
  for (size_t n = 0; n < tensors.size(); ++n) {
    EXPECT_FALSE(DecodeTensors(tensors.substr(0, n)).ok()) << n;
  }
}

TEST(StreamNotes, AreTakenOnceAndFound) {
  StreamNotes notes;
  EXPECT_FALSE(notes.Find(1, NoteKind::kPull));
  EXPECT_TRUE(notes.Take(1, NoteKind::kPull, std::string("ab")).ok());
  EXPECT_FALSE(notes.Take(1, NoteKind::kPull, std::string("cd")).ok());
  EXPECT_TRUE(notes.Take(2, NoteKind::kPull, std::string()).ok());
  EXPECT_EQ(notes.Find(1, NoteKind::kPull), "ab");
  EXPECT_EQ(notes.Wait(2, NoteKind::kPull, Now()).value(), "");
}

TEST(StreamNotes, AreWaitedForUntilTheDeadlineOrTheEnd) {
  StreamNotes notes;
  EXPECT_TRUE(absl::IsDeadlineExceeded(notes.Wait(1, NoteKind::kReady, Now()).status()));
  notes.Cancel();
  EXPECT_TRUE(absl::IsCancelled(notes.Wait(1, NoteKind::kReady, Now() + seconds(20)).status()));
}

}  // namespace
}  // namespace rewire::state
