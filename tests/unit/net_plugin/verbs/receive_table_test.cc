// The pieces of outstanding receives: each counts once, and belongs to a receive.
#include "net_plugin/verbs/receive_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

class ReceiveTableTest : public ::testing::Test {
 protected:
  std::string Why(const Immediate& piece) {
    return std::string(table_.Arrive(Pack(piece), 1).message());
  }

  const std::string peer_ = "10.0.0.7:4711";
  const std::unique_ptr<ClearRing> ring_ = std::make_unique<ClearRing>();
  ReceiveTable table_{nullptr, ring_.get(), &peer_};
};

TEST_F(ReceiveTableTest, CompletesWithTheLastMissingPiece) {
  Receive& r = *table_.Begin(40, 2);
  r.parts[0] = r.parts[1] = {};
  EXPECT_EQ(table_.unfinished(), 1u);
  EXPECT_EQ(table_.Arrive(Pack({40, 0, 1, false, true}), 100), absl::OkStatus());
  EXPECT_EQ(table_.Arrive(Pack({40, 1, 0, false, true}), 7), absl::OkStatus());
  EXPECT_TRUE(r.IsOpen());
  EXPECT_EQ(table_.Arrive(Pack({40, 0, 0, false, false}), 4096), absl::OkStatus());
  EXPECT_FALSE(r.IsOpen());
  EXPECT_EQ(table_.unfinished(), 0u);
  EXPECT_EQ(r.parts[0].size(), 4196u);
  EXPECT_EQ(r.parts[1].size(), 7u);
}

TEST_F(ReceiveTableTest, TakesByteCountOfPiecesThatAreSentApart) {
  Receive& r = *table_.Begin(3, 1);
  r.parts[0] = {};
  *ring_->Total(3, 0) = 123456;
  EXPECT_EQ(table_.Arrive(Pack({3, 0, 0, true, true}), 4), absl::OkStatus());
  EXPECT_EQ(r.parts[0].size(), 123456u);
}

TEST_F(ReceiveTableTest, RefusesPiecesThatThePeerMayNotSend) {
  table_.Begin(5, 1)->parts[0] = {};
  EXPECT_EQ(Why({5, 0, 2, false, false}), "");
  EXPECT_EQ(Why({5, 0, 2, false, false}),
            "receive message 5 from 10.0.0.7:4711: piece 2 of buffer 0 arrived twice");
  EXPECT_THAT(Why({5, 1, 0, false, false}), HasSubstr("names no outstanding receive: sequence=5"));
  EXPECT_THAT(Why({6, 0, 0, false, false}), HasSubstr("names no outstanding receive: sequence=6"));
  EXPECT_THAT(Why({5 + kMaxRequests, 0, 0, false, false}), HasSubstr("sequence=37"));
}

TEST_F(ReceiveTableTest, ReportsIncompleteReceives) {
  for (const uint64_t sequence : {7, 8}) table_.Begin(sequence, 1)->parts[0] = {};
  EXPECT_EQ(table_.Arrive(Pack({7, 0, 0, false, true}), 1), absl::OkStatus());
  EXPECT_EQ(table_.Arrive(Pack({8, 0, 3, false, false}), 1), absl::OkStatus());
  const Received report = table_.Report(9);
  EXPECT_EQ(report.next, 9u);
  ASSERT_EQ(report.receives.size(), 1u);
  EXPECT_EQ(report.receives[0].sequence, 8u);
  EXPECT_EQ(report.receives[0].pieces, std::vector<uint64_t>{8});
}

}  // namespace
}  // namespace rewire::net
