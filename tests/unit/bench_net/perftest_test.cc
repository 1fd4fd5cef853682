#include "bench/net/perftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace rewire::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kBandwidth[] = R"(
 TX depth        : 8
 local address: LID 0000 QPN 0x0011 PSN 0xb54b1e RKey 0x0002ab VAddr 0x00562715180000
 GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:00:01
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      500              77.42              39.75  		   0.000636
---------------------------------------------------------------------------------------
)";
constexpr char kLatency[] = R"(
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 8       1000          30.90          10319.96      4007.80  	       3886.55     	1592.33		8023.05 		10319.96
)";

TEST(ParsePerftest, TheNumbersOfABandwidth) {
  EXPECT_THAT(*ParsePerftest(kBandwidth, 65536), ElementsAre(65536, 500, 77.42, 39.75, 0.000636));
}

TEST(ParsePerftest, TheNumbersOfALatency) {
  EXPECT_THAT(*ParsePerftest(kLatency, 8),
              ElementsAre(8, 1000, 30.90, 10319.96, 4007.80, 3886.55, 1592.33, 8023.05, 10319.96));
}

TEST(ParsePerftest, AClockThatIsNotKnownIsNoFigure) {
  const auto parsed = ParsePerftest(" 65536      400      inf     inf     inf\n", 65536);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kUnavailable);
}

TEST(ParsePerftest, WhatHasNoSuchLineIsShown) {
  const auto parsed = ParsePerftest(kBandwidth, 8);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(parsed.status().message()), HasSubstr("QPN 0x0011"));
}

TEST(RunPerftest, AProgramThatFailsIsNamed) {
  const PerftestEnd end{"none", "127.0.0.1", 0};
  const auto output = RunPerftest({"false"}, end, end);
  EXPECT_FALSE(output.ok());
  EXPECT_THAT(std::string(output.status().message()), HasSubstr("false"));
}

}  // namespace
}  // namespace rewire::bench
