#include "bench/failover/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <vector>

namespace rewire::bench {
namespace {

std::vector<char> Message(uint64_t number) {
  std::vector<char> message(64);
  FillMessage(number, message);
  return message;
}

Arrivals Of(std::initializer_list<uint64_t> numbers) {
  Arrivals arrivals;
  for (const uint64_t number : numbers) arrivals.Add(Message(number));
  return arrivals;
}

TEST(Arrivals, InOrderIsFlawless) {
  const Arrivals arrivals = Of({0, 1, 2});
  EXPECT_TRUE(arrivals.flawless());
  EXPECT_EQ(arrivals.next(), 3U);
}

TEST(Arrivals, OneThatComesTwiceIsDuplicated) {
  const Arrivals arrivals = Of({0, 1, 1, 2});
  EXPECT_EQ(arrivals.duplicated(), 1U);
  EXPECT_EQ(arrivals.lost() + arrivals.corrupt(), 0U);
  EXPECT_EQ(arrivals.next(), 3U);
}

TEST(Arrivals, WhatIsLeftOutIsLost) {
  Arrivals arrivals = Of({0, 3});
  EXPECT_EQ(arrivals.lost(), 2U);
  EXPECT_EQ(arrivals.next(), 4U);
  arrivals.GiveUp(6);
  EXPECT_EQ(arrivals.lost(), 4U);
  EXPECT_FALSE(arrivals.flawless());
}

TEST(Arrivals, AByteOfAnotherMessageIsCorrupt) {
  Arrivals arrivals;
  std::vector<char> message = Message(0);
  message[40] = Message(1)[40];
  ASSERT_NE(message, Message(0));
  arrivals.Add(message);
  arrivals.Add(Message(1));
  EXPECT_EQ(arrivals.corrupt(), 1U);
  EXPECT_EQ(arrivals.lost() + arrivals.duplicated(), 0U);
}

TEST(Arrivals, BytesOfTheRightMessageElsewhereAreCorrupt) {
  Arrivals arrivals;
  std::vector<char> message = Message(0);
  std::swap_ranges(message.begin() + 8, message.begin() + 16, message.begin() + 16);
  arrivals.Add(message);
  EXPECT_EQ(arrivals.corrupt(), 1U);
}

TEST(Arrivals, AnEmptyOneIsCorrupt) {
  Arrivals arrivals;
  arrivals.Add({});
  EXPECT_EQ(arrivals.corrupt(), 1U);
  EXPECT_EQ(arrivals.next(), 1U);
}

}  // namespace
}  // namespace rewire::bench
