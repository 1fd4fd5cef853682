#include "bench/lib/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace rewire::bench {
namespace {

using ::testing::HasSubstr;

TEST(Table, NumbersFitTheirColumn) {
  EXPECT_EQ(FitNumber(1.234, 7, 2), "   1.23");
  EXPECT_EQ(FitNumber(12345.678, 7, 2), "12345.7");
  EXPECT_EQ(FitNumber(1234567.8, 7, 2), "1234568");
  EXPECT_EQ(FitNumber(0, 6, 2), "  0.00");
  EXPECT_EQ(FitNumber(123456789.0, 7, 2), "1.2e+08");
  for (double value = 1e-3; value < 1e12; value *= 7) {
    EXPECT_EQ(FitNumber(value, 7, 2).size(), 7u) << value;
  }
}

TEST(Table, RowsHaveNcclTestsColumns) {
  Row row;
  row.size = 8;
  row.count = 2;
  row.type = "float";
  row.op = "sum";
  row.out_of_place = {7.5, 0.01, 0.02, 0};
  row.in_place = {7.25, 0.01, 0.02, std::nullopt};
  EXPECT_EQ(TableRow(row),
            "           8             2     float     sum      -1"
            "     7.50    0.01    0.02       0     7.25    0.01    0.02     N/A\n");
}

TEST(Table, EveryLineButRowsIsAComment) {
  std::istringstream text(TableStart("all_reduce_perf", "nThread 1", {"Rank  0", "Rank  1"}) +
                          TableHeader() + TableEnd("all_reduce_perf", 0, 12.5));
  int lines = 0;
  for (std::string line; std::getline(text, line); ++lines) EXPECT_EQ(line[0], '#') << line;
  EXPECT_EQ(lines, 14);
  EXPECT_THAT(TableEnd("x", 0, 12.5), HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(TableEnd("x", 3, 12.5), HasSubstr("# Out of bounds values : 3 FAILED\n"));
  EXPECT_THAT(TableEnd("x", 0, 12.5), HasSubstr("# Avg bus bandwidth    : 12.5\n"));
}

TEST(Table, BandwidthFactors) {
  // 1000 bytes in 1 us are 1 GB/s.
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kAllReduce, 1000, 4, 1).algbw, 1);
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kAllReduce, 1000, 4, 1).busbw, 1.5);
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kAllGather, 1000, 4, 1).busbw, 0.75);
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kReduceScatter, 1000, 4, 1).busbw, 0.75);
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kAllToAll, 1000, 2, 1).busbw, 0.5);
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kBroadcast, 1000, 4, 2).busbw, 0.5);
  EXPECT_DOUBLE_EQ(Bandwidth(Collective::kSendRecv, 1000, 4, 2).busbw, 0.5);
}

}  // namespace
}  // namespace rewire::bench
