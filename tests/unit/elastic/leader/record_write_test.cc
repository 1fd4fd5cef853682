// One compare-and-swap at a time, repeated until its outcome is known.
#include "reconfig/elastic/leader/record_write.h"

#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

constexpr Duration kRetry = milliseconds(100);
const Time kStart = Time{} + seconds(1000);

class RecordWriteTest : public ::testing::Test {
 protected:
  RecordWriteTest() {
    WorldRecord record;
    record.reserved_epoch = 4;
    write_.Begin(kStart, record, 7, &out_);
  }
  [[nodiscard]] CompareAndSwap LastSwap() const { return std::get<CompareAndSwap>(out_.back()); }

  RecordWrite write_{kRetry};
  std::vector<LeaderAction> out_;
};

TEST_F(RecordWriteTest, WritesTheNextRevision) {
  ASSERT_EQ(out_.size(), 1u);
  EXPECT_EQ(LastSwap().expected_revision, 7u);
  EXPECT_EQ(LastSwap().record.revision, 8u);
  EXPECT_EQ(*write_.record(), LastSwap().record);
  EXPECT_EQ(write_.record()->reserved_epoch, 4u);
}

TEST_F(RecordWriteTest, RepeatsTheSameSwapAfterAnError) {
  write_.RetryIfDue(kStart + seconds(1), &out_);
  EXPECT_EQ(out_.size(), 1u);  // no error: the answer is awaited
  EXPECT_TRUE(write_.OnError(kStart, "disk"));
  EXPECT_EQ(write_.retry_at(), kStart + kRetry);
  write_.RetryIfDue(kStart + kRetry - milliseconds(1), &out_);
  EXPECT_EQ(out_.size(), 1u);
  write_.RetryIfDue(kStart + kRetry, &out_);
  ASSERT_EQ(out_.size(), 2u);
  EXPECT_EQ(LastSwap().expected_revision, 7u);
  EXPECT_EQ(LastSwap().record, *write_.record());
  EXPECT_EQ(write_.retry_at(), std::nullopt);
}

TEST_F(RecordWriteTest, ReportsEachErrorOnceAndTheFirstAnswerAfterErrors) {
  EXPECT_TRUE(write_.OnError(kStart, "disk"));
  EXPECT_FALSE(write_.OnError(kStart, "disk"));
  EXPECT_TRUE(write_.OnError(kStart, "lock"));
  EXPECT_EQ(write_.error(), "lock");
  EXPECT_TRUE(write_.OnAnswer(kStart + milliseconds(30)));
  EXPECT_EQ(write_.error(), "");
  EXPECT_EQ(write_.took(), milliseconds(30));
  EXPECT_FALSE(write_.OnAnswer(kStart + milliseconds(40)));
}

TEST_F(RecordWriteTest, RecognisesItsRecordAfterALostAnswer) {
  EXPECT_TRUE(write_.WrittenBy({true, {}}));
  EXPECT_TRUE(write_.WrittenBy({false, *write_.record()}));
  WorldRecord other = *write_.record();
  other.next_member = 99;
  EXPECT_FALSE(write_.WrittenBy({false, other}));
}

TEST_F(RecordWriteTest, TakeEndsTheWrite) {
  EXPECT_EQ(write_.Take().revision, 8u);
  EXPECT_EQ(write_.record(), nullptr);
}

}  // namespace
}  // namespace rewire::elastic
