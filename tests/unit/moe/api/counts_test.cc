// A recording made through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "reconfig/moe/plan/recording.h"
#include "rewire/rewire_moe.h"

namespace rewire {
namespace {

using ::testing::HasSubstr;

class CountsTest : public ::testing::Test {
 protected:
  CountsTest() : path_(::testing::TempDir() + "/counts_test." + std::to_string(getpid())) {
    remove(path_.c_str());
  }
  ~CountsTest() override { remove(path_.c_str()); }

  const std::string path_;
  rewireCounts_t counts_ = nullptr;
};

TEST_F(CountsTest, WritesAddedCountsToTheFile) {
  ASSERT_EQ(rewireCountsCreate(path_.c_str(), 1, 2, 3, &counts_), rewireSuccess);
  const uint32_t tokens[] = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(rewireCountsAdd(counts_, 9, 4, tokens), rewireSuccess);
  auto reader = moe::CountReader::Open(path_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->shape(), (moe::RecordedShape{{1, 2}, 3}));
  const auto recorded = reader->Next();
  ASSERT_TRUE(recorded.ok() && recorded->has_value());
  EXPECT_EQ((*recorded)->micro_batch, 9U);
  EXPECT_EQ((*recorded)->layer, 4U);
  EXPECT_EQ((*recorded)->counts.at(1, 0), 4U);
  EXPECT_EQ(rewireCountsClose(counts_), rewireSuccess);
}

TEST_F(CountsTest, ErrorsNameTheArgument) {
  EXPECT_EQ(rewireCountsCreate(nullptr, 1, 2, 3, &counts_), rewireInvalidArgument);
  EXPECT_STREQ(rewireMoeLastError(), "rewireCountsCreate: path is NULL");
  EXPECT_EQ(rewireCountsCreate(path_.c_str(), 1, 2, 3, nullptr), rewireInvalidArgument);
  EXPECT_EQ(rewireCountsCreate(path_.c_str(), 1, 0, 3, &counts_), rewireInvalidArgument);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr("1 nodes of 0 devices and 3 experts"));
  ASSERT_EQ(rewireCountsCreate(path_.c_str(), 1, 2, 3, &counts_), rewireSuccess);
  rewireCounts_t second = nullptr;
  EXPECT_EQ(rewireCountsCreate(path_.c_str(), 1, 2, 3, &second), rewireInvalidArgument);
  EXPECT_THAT(rewireMoeLastError(), HasSubstr(path_ + ": create: File exists"));
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(rewireCountsAdd(counts_, 0, 0, nullptr), rewireInvalidArgument);
  EXPECT_STREQ(rewireMoeLastError(), "rewireCountsAdd: tokens is NULL");
  EXPECT_EQ(rewireCountsClose(counts_), rewireSuccess);
  EXPECT_EQ(rewireCountsClose(nullptr), rewireInvalidArgument);
}

}  // namespace
}  // namespace rewire
