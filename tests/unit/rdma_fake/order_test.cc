// Order guarantees of operations, and the times at which bytes become visible.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "tests/unit/rdma_fake/pair.h"

namespace rewire::rdma::fake {
namespace {

TEST(Order, EqualSeedsGiveEqualRuns) {
  const auto run = [](uint64_t seed) {
    Pair pair({.seed = seed});
    pair.fabric.SetLoss("left", 50'000);
    pair.Connect();
    const Segment segment = pair.left.segment(0, 50'000);
    for (uint64_t id = 0; id < 5; ++id) {
      pair.right.PostEmptyReceive(id);
      pair.left.Post(pair.Immediate(segment, id));
      pair.right.Await(1);
    }
    return pair.fabric.digest();
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(Order, IsKeptWithinAQueuePairDespiteLosses) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Pair pair({.seed = seed});
    pair.fabric.SetLoss("left", 50'000);
    pair.fabric.SetLoss("right", 50'000);
    pair.Connect();
    const Segment segment = pair.left.segment(0, 10'000);
    for (uint64_t id = 0; id < 10; ++id) pair.right.PostEmptyReceive(id);
    for (uint64_t id = 0; id < 10; ++id) pair.left.Post(pair.Immediate(segment, id));
    const auto received = pair.right.Await(10);
    for (uint64_t id = 0; id < 10; ++id) EXPECT_EQ(received[id].immediate, id) << "seed " << seed;
    const auto sent = pair.left.Await(10);
    for (uint64_t id = 0; id < 10; ++id) EXPECT_EQ(sent[id].id, id) << "seed " << seed;
  }
}

TEST(Order, IsNotKeptBetweenQueuePairs) {
  // The same end sends first every time; for some seed the other end's packet arrives first.
  int overtaken = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Pair pair({.seed = seed});
    End left;
    End right;
    left.Open(pair.driver.get(), "left");
    right.Open(pair.driver.get(), "right");
    left.Make();
    right.Make();
    rdma::Connect(&left, &right, 1, {});
    pair.Connect();
    pair.right.PostEmptyReceive(1);
    right.PostEmptyReceive(2);
    pair.left.Post(pair.Immediate({}, 1));
    SendWork second = End::WriteTo(right, 0, {}, 2);
    second.operation = Operation::kWriteWithImmediate;
    left.Post(second);
    std::array<Completion, 1> one;
    while (true) {
      if (*right.completions->Poll(one) == 1) {
        ++overtaken;
        break;
      }
      if (*pair.right.completions->Poll(one) == 1) break;
    }
  }
  EXPECT_GT(overtaken, 0);
  EXPECT_LT(overtaken, 40);
}

TEST(Order, BytesOfAWriteAppearInAnyOrderBeforeTheCompletion) {
  bool later_first = false;
  bool word_torn = false;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Pair pair({.seed = seed, .poll_step = {}});
    pair.Connect();
    constexpr uint32_t kBytes = 64;
    std::fill_n(pair.left.memory.begin(), kBytes, 'x');
    const Segment segment = pair.left.segment(0, kBytes);
    pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
    while (std::count(pair.right.memory.begin(), pair.right.memory.begin() + kBytes, 'x') !=
           kBytes) {
      pair.fabric.Advance(nanoseconds(50));
      const char* now = pair.right.memory.data();
      later_first |= now[0] == 0 && now[kBytes - 1] == 'x';
      const auto torn = std::count(now, now + 8, 'x');
      word_torn |= torn != 0 && torn != 8;
    }
  }
  EXPECT_TRUE(later_first);
  EXPECT_TRUE(word_torn);
}

TEST(Order, LandsWholeCacheLinesWithUnitOf64) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Pair pair({.seed = seed, .poll_step = {}, .landing_unit = 64});
    pair.Connect();
    const size_t offset = 64 - pair.right.address() % 64;
    std::fill_n(pair.left.memory.begin(), 256, 'x');
    const Segment segment = pair.left.segment(0, 256);
    pair.left.Post(End::WriteTo(pair.right, offset, segment, 1));
    for (int step = 0; step < 400; ++step) {
      pair.fabric.Advance(nanoseconds(50));
      for (size_t line = 0; line < 4; ++line) {
        const char* at = pair.right.memory.data() + offset + 64 * line;
        const auto there = std::count(at, at + 64, 'x');
        ASSERT_TRUE(there == 0 || there == 64);
      }
    }
  }
}

TEST(Order, SendersCompletionDoesNotImplyVisibleBytes) {
  // For some seed the sender has its completion before the receiver can see the bytes.
  bool early = false;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Pair pair({.seed = seed, .jitter = {}});
    pair.Connect();
    pair.left.memory[0] = 'x';
    const Segment segment = pair.left.segment(0, 1);
    pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
    pair.left.Await(1);
    early |= pair.right.memory[0] != 'x';
  }
  EXPECT_TRUE(early);
}

TEST(Order, BufferReusedBeforeCompletionCorruptsMessage) {
  Pair pair;
  pair.Connect();
  pair.right.PostEmptyReceive(1);
  pair.left.Fill(0, 4096, 1);
  const Segment segment = pair.left.segment(0, 4096);
  pair.left.Post(pair.Immediate(segment, 1));
  pair.left.Fill(0, 4096, 2);
  pair.right.Await(1);
  EXPECT_TRUE(pair.right.Holds(0, 4096, 2));
}

TEST(Order, LaterWriteToSameAddressWins) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Pair pair({.seed = seed});
    pair.Connect();
    pair.right.PostEmptyReceive(1);
    pair.left.Fill(0, 1000, 1);
    pair.left.Fill(1000, 1000, 2);
    const Segment first = pair.left.segment(0, 1000);
    const Segment second = pair.left.segment(1000, 1000);
    pair.left.Post(End::WriteTo(pair.right, 0, first, 1));
    pair.left.Post(pair.Immediate(second, 2));
    pair.right.Await(1);
    EXPECT_TRUE(pair.right.Holds(0, 1000, 2)) << "seed " << seed;
  }
}

TEST(Order, LimitsOutstandingReads) {
  // The attributes allow one READ at a time; all READs complete, with the operations between them.
  Pair pair;
  pair.fabric.SetLoss("right", 20'000);
  pair.Connect();
  pair.right.Fill(0, 60'000, 5);
  std::vector<Segment> segments;
  segments.reserve(6);
  for (uint64_t id = 0; id < 6; ++id) {
    segments.push_back(pair.left.segment(id * 10'000, 10'000));
    SendWork read = End::WriteTo(pair.right, id * 10'000, segments.back(), id);
    read.operation = Operation::kRead;
    pair.left.Post(read);
  }
  for (const Completion& completion : pair.left.Await(6)) {
    EXPECT_EQ(completion.status, CompletionStatus::kSuccess) << Name(completion.status);
  }
  EXPECT_TRUE(pair.left.Holds(0, 60'000, 5));
}

TEST(Order, ServesTwoThreadsAtOnce) {
  Pair pair;
  pair.Connect();
  constexpr uint64_t kRounds = 300;
  std::thread receiver([&] {
    for (uint64_t round = 0; round < kRounds; ++round) {
      pair.right.PostEmptyReceive(round);
      EXPECT_EQ(pair.right.Await(1)[0].immediate, round);
      EXPECT_TRUE(pair.right.Holds(0, 5000, static_cast<uint32_t>(round)));
      pair.right.Post({round, Operation::kSend});
      pair.right.Await(1);
    }
  });
  for (uint64_t round = 0; round < kRounds; ++round) {
    pair.left.PostEmptyReceive(round);
    pair.left.Fill(0, 5000, static_cast<uint32_t>(round));
    const Segment segment = pair.left.segment(0, 5000);
    pair.left.Post(pair.Immediate(segment, round));
    pair.left.Await(2);
  }
  receiver.join();
}

}  // namespace
}  // namespace rewire::rdma::fake
