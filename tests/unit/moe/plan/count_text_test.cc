#include "reconfig/moe/plan/count_text.h"

#include <gtest/gtest.h>

#include <sstream>

namespace rewire::moe {
namespace {

constexpr char kHeader[] = "micro_batch,layer,source,expert,tokens\n";

absl::StatusOr<CountTable> Read(const std::string& text, const RecordedShape& shape = {{1, 0}, 0}) {
  std::istringstream in(text);
  return ReadCountText(in, "x.csv", shape);
}
std::string Wrong(const std::string& text, const RecordedShape& shape = {{1, 0}, 0}) {
  return std::string(Read(text, shape).status().message());
}

TEST(CountText, SortsRecords) {
  const auto table = Read("# of a run\n" + std::string(kHeader) +
                          "2,0,0,1,7\n\n1,5,1,0,9\r\n1, 5 ,0,2,8\n1,0,0,0,4294967295\n");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->shape, (RecordedShape{{1, 2}, 3}));
  Counts first(2, 3), second(2, 3), third(2, 3);
  first.at(0, 0) = UINT32_MAX;
  second.at(1, 0) = 9;
  second.at(0, 2) = 8;
  third.at(0, 1) = 7;
  EXPECT_EQ(table->records, (std::vector<Recorded>{{1, 0, first}, {1, 5, second}, {2, 0, third}}));
}

TEST(CountText, KeepsTheGivenShape) {
  const auto table = Read(std::string(kHeader) + "0,0,4,0,1\n", {{3, 0}, 16});
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->shape, (RecordedShape{{3, 2}, 16}));
  EXPECT_EQ(table->records[0].counts.devices(), 6U);
  EXPECT_EQ(Wrong(std::string(kHeader) + "0,0,4,0,1\n", {{2, 2}, 16}),
            "x.csv:2: source=4 expert=0: must be below 4 (devices) and 16 (experts)");
  EXPECT_EQ(Wrong(std::string(kHeader) + "0,0,0,9,1\n", {{2, 2}, 9}),
            "x.csv:2: source=0 expert=9: must be below 4 (devices) and 9 (experts)");
}

TEST(CountText, ErrorsNameTheLine) {
  const std::string header = kHeader;
  EXPECT_EQ(Wrong(""), "read counts: file=x.csv: no rows after the header");
  EXPECT_EQ(Wrong(header), "read counts: file=x.csv: no rows after the header");
  EXPECT_EQ(Wrong("0,0,0,0,1\n"),
            "x.csv:1: header='0,0,0,0,1': must be micro_batch,layer,source,expert,tokens");
  EXPECT_EQ(Wrong(header + "0,0,0,1\n"),
            "x.csv:2: fields=4: must be 5: micro_batch,layer,source,expert,tokens");
  EXPECT_EQ(Wrong(header + "-1,0,0,0,1\n"),
            "x.csv:2: micro_batch='-1': must be a number below 2^64");
  EXPECT_EQ(Wrong(header + "0,0,0,0,1\n0,0,0,0,4294967296\n"),
            "x.csv:3: tokens='4294967296': must be a number below 2^32");
  EXPECT_EQ(Wrong(header + "0,0,a,0,1\n"), "x.csv:2: source='a': must be a number below 2^32");
  EXPECT_EQ(Wrong(header + "0,1,2,3,4\n0,1,2,2,4\n0,1,2,3,4\n"),
            "x.csv:4: source=2 expert=3: already in line 2");
  // The sizes in one line exceed the limit.
  EXPECT_EQ(Wrong(header + "0,0,4294967295,4294967295,1\n"),
            "x.csv: 1 nodes of 4294967295 devices and 4294967295 experts: must be at least one of "
            "each, and "
            "at most "
            "16777216 pairs of device and expert");
}

}  // namespace
}  // namespace rewire::moe
