// The pieces of one message: cut, done, and waiting again after a rail has failed.
#include "net_plugin/verbs/send_message.h"

#include <gtest/gtest.h>

namespace rewire::net {
namespace {

constexpr size_t kPieceBytes = 4096;

SendMessage Cut(size_t bytes) {
  SendMessage m;
  m.busy = true;
  m.bytes = bytes;
  m.sequence = 5;
  m.Cut(kPieceBytes);
  return m;
}

TEST(SendMessageTest, CutsIntoAtMost64Pieces) {
  for (const size_t bytes : {size_t{0}, size_t{1}, kPieceBytes, kPieceBytes + 1, 64 * kPieceBytes,
                             64 * kPieceBytes + 1, size_t{1} << 30}) {
    const SendMessage m = Cut(bytes);
    EXPECT_GE(m.pieces, 1u);
    EXPECT_LE(m.pieces, kMostPieces);
    size_t sum = 0;
    for (uint32_t p = 0; p < m.pieces; ++p) {
      EXPECT_EQ(m.OffsetOf(p), sum);
      sum += m.BytesOf(p);
    }
    EXPECT_EQ(sum, bytes);
    EXPECT_EQ(m.waiting, m.all());
    EXPECT_FALSE(m.IsDone());
  }
  EXPECT_EQ(Cut(kPieceBytes).pieces, 1u);
  EXPECT_EQ(Cut(kPieceBytes + 1).pieces, 2u);
}

TEST(SendMessageTest, PostedPiecesOfFailedRailWaitAgainUnlessTheyArrived) {
  SendMessage m = Cut(4 * kPieceBytes);
  m.rail = {0, 1, 0, 0};
  m.waiting = 0b1000;  // the last piece was never posted
  m.done = 0b0101;     // the device acknowledged both, but one is missing
  Received report;
  report.next = 6;
  report.receives = {{5, {0b0001}}};
  EXPECT_TRUE(m.Settle(0, report));
  EXPECT_EQ(m.done, 0b0001u);
  EXPECT_EQ(m.waiting, 0b1100u);
}

TEST(SendMessageTest, CompleteReceivesAreNotNamedInTheReport) {
  SendMessage m = Cut(2 * kPieceBytes);
  m.waiting = 0;
  Received report;
  report.next = 6;
  EXPECT_TRUE(m.Settle(0, report));
  EXPECT_TRUE(m.IsDone());
}

TEST(SendMessageTest, ReportThatLacksAnAcknowledgedMessageIsAnError) {
  SendMessage m = Cut(2 * kPieceBytes);
  m.Finish();
  m.busy = false;  // NCCL knows that the message is complete
  EXPECT_FALSE(m.Settle(0, Received{}));
  EXPECT_TRUE(m.Settle(1, Received{}));  // a rail that carried none of its pieces
}

}  // namespace
}  // namespace rewire::net
