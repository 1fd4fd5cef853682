// Links that fail, are slow or lose packets, addresses that change, and writes that arrive too
// late.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "reconfig/rdma/port.h"
#include "tests/unit/rdma_fake/pair.h"

namespace rewire::rdma::fake {
namespace {

DeviceEventKind NextEvent(Device& device) {
  const auto event = device.ReadEvent();
  return event.ok() && event->has_value() ? (*event)->kind : DeviceEventKind::kOther;
}

TEST(Fault, LinkDownBeyondRetriesFailsRequests) {
  Pair pair;
  pair.Connect(3);
  pair.fabric.SetLinkUp("right", false);
  EXPECT_EQ(NextEvent(*pair.right.device), DeviceEventKind::kPortDown);
  EXPECT_EQ(pair.right.device->QueryPort(1)->state, PortState::kDown);
  const Time start = pair.fabric.now();
  const Segment segment = pair.left.segment(0, 8);
  const std::array chain = {End::WriteTo(pair.right, 0, segment, 1),
                            End::WriteTo(pair.right, 0, segment, 2)};
  ASSERT_TRUE(pair.left.queue_pair->PostSend(chain).status.ok());
  const auto done = pair.left.Await(2);
  EXPECT_EQ(done[0].status, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(done[1].status, CompletionStatus::kFlushed);
  // 4.096 us << 8, four times.
  EXPECT_GE(pair.fabric.now() - start, microseconds(4 * 1048));
  EXPECT_LE(pair.fabric.now() - start, microseconds(5 * 1048));
  EXPECT_EQ(Pair::StateOf(pair.left), QueuePairState::kError);
  // The other side has noticed nothing.
  EXPECT_EQ(Pair::StateOf(pair.right), QueuePairState::kReadyToSend);
}

TEST(Fault, LinkUpWithinRetriesLosesNothing) {
  Pair pair;
  pair.Connect();
  pair.fabric.SetLinkUp("left", false);
  pair.left.Fill(0, 5000, 1);
  pair.right.PostEmptyReceive(1);
  const Segment segment = pair.left.segment(0, 5000);
  pair.left.Post(pair.Immediate(segment, 1));
  pair.fabric.Advance(milliseconds(3));
  pair.fabric.SetLinkUp("left", true);
  EXPECT_EQ(NextEvent(*pair.left.device), DeviceEventKind::kPortDown);
  EXPECT_EQ(NextEvent(*pair.left.device), DeviceEventKind::kPortActive);
  EXPECT_EQ(pair.right.Await(1)[0].status, CompletionStatus::kSuccess);
  EXPECT_TRUE(pair.right.Holds(0, 5000, 1));
}

TEST(Fault, LossOnlyDelaysMessages) {
  const auto run = [](uint32_t loss) {
    Pair pair;
    pair.fabric.SetLoss("left", loss);
    pair.Connect();
    pair.left.Fill(0, End::kBytes, 7);
    pair.right.PostEmptyReceive(1);
    const Segment segment = pair.left.segment(0, End::kBytes);
    const Time start = pair.fabric.now();
    pair.left.Post(pair.Immediate(segment, 1));
    EXPECT_EQ(pair.right.Await(1)[0].status, CompletionStatus::kSuccess);
    EXPECT_TRUE(pair.right.Holds(0, End::kBytes, 7));
    return pair.fabric.now() - start;
  };
  EXPECT_GT(run(30'000), run(0));
}

TEST(Fault, SlowLinkDelaysCompletions) {
  Pair pair;
  pair.Connect(7, 7, 20);
  pair.fabric.SetSpeed("left", 100);
  pair.fabric.SetLatency("right", milliseconds(2));
  pair.right.PostEmptyReceive(1);
  const Segment segment = pair.left.segment(0, 125'000);
  const Time start = pair.fabric.now();
  pair.left.Post(pair.Immediate(segment, 1));
  pair.fabric.Advance(milliseconds(11));  // a poll takes a microsecond: thousands would follow
  EXPECT_EQ(pair.right.Await(1)[0].status, CompletionStatus::kSuccess);
  // A million bits at 100 Mbit/s, and the latency.
  EXPECT_GE(pair.fabric.now() - start, milliseconds(12));
  EXPECT_LE(pair.fabric.now() - start, milliseconds(15));
}

TEST(Fault, CountsReceiverNotReadyRetries) {
  Pair pair;
  pair.Connect(7, 3);
  const Time start = pair.fabric.now();
  pair.left.Post(pair.Immediate({}, 1));
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRnrRetryExceeded);
  EXPECT_GE(pair.fabric.now() - start, 3 * microseconds(10));
  EXPECT_EQ(Pair::StateOf(pair.right), QueuePairState::kReadyToSend);
}

// Delays a write in the switch while its sender gives up. After `between` has run and the write has
// been released, returns the byte in the receiver's memory: 'o' is the old byte, 'w' the written
// one.
char Delayed(const std::function<void(Pair&)>& between, uint64_t seed = 1) {
  Pair pair({.seed = seed});
  pair.Connect(1);
  pair.left.memory[0] = 'w';
  pair.right.memory[0] = 'o';
  pair.fabric.Hold("right");
  const Segment segment = pair.left.segment(0, 1);
  pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRetryExceeded);
  between(pair);
  pair.fabric.Release("right");
  pair.fabric.Advance(milliseconds(100));
  return pair.right.memory[0];
}

TEST(Fault, DelayedWriteLandsAfterItsSenderGaveUp) {
  EXPECT_EQ(Delayed([](Pair&) {}), 'w');
  // Neither the sender's error nor its reset cancels the write.
  EXPECT_EQ(Delayed([](Pair& pair) { EXPECT_TRUE(pair.left.queue_pair->ToReset().ok()); }), 'w');
}

TEST(Fault, DelayedWriteDoesNotLandInAQueuePairInError) {
  EXPECT_EQ(Delayed([](Pair& pair) { EXPECT_TRUE(pair.right.queue_pair->ToError().ok()); }), 'o');
}

TEST(Fault, DelayedWriteDoesNotLandInAQueuePairThatWasReset) {
  EXPECT_EQ(Delayed([](Pair& pair) { EXPECT_TRUE(pair.right.queue_pair->ToReset().ok()); }), 'o');
  EXPECT_EQ(Delayed([](Pair& pair) { pair.right.Make(); }), 'o');
}

TEST(Fault, DelayedWriteDoesNotLandInDeregisteredMemory) {
  EXPECT_EQ(Delayed([](Pair& pair) { EXPECT_TRUE(pair.right.region->Deregister().ok()); }), 'o');
}

TEST(Fault, DelayedWriteLandsInAConnectionThatUsesItsNumbersAgain) {
  const auto again = [](uint32_t psn) {
    return [psn](Pair& pair) {
      EXPECT_TRUE(pair.left.queue_pair->ToReset().ok());
      EXPECT_TRUE(pair.right.queue_pair->ToReset().ok());
      rdma::Connect(&pair.left, &pair.right, psn, {});
    };
  };
  EXPECT_EQ(Delayed(again(Pair::kPsn)), 'w');
  EXPECT_EQ(Delayed(again(0x5000)), 'o');
}

TEST(Fault, NothingLandsAfterFence) {
  // Bytes that have arrived but are not yet in memory when the queue pair or the memory goes away.
  int torn = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Pair pair({.seed = seed});
    pair.Connect();
    pair.left.Fill(0, 100'000, 1);
    const Segment segment = pair.left.segment(0, 100'000);
    pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
    pair.fabric.Advance(microseconds(4 + seed % 7));
    if (seed % 2 == 0) {
      ASSERT_TRUE(pair.right.queue_pair->ToError().ok());
    } else {
      ASSERT_TRUE(pair.right.region->Deregister().ok());
    }
    const std::vector<char> then = pair.right.memory;
    pair.fabric.Advance(milliseconds(50));
    EXPECT_EQ(pair.right.memory, then) << "seed " << seed;
    torn += !pair.right.Holds(0, 100'000, 1) && pair.right.memory != std::vector<char>(End::kBytes);
  }
  // Some of these writes were interrupted.
  EXPECT_GT(torn, 30);
}

TEST(Fault, ReportsChangedAddresses) {
  Pair pair;
  pair.Connect(1);
  const GidEntry before = pair.right.gid;
  // After a flap the rows return at other indices.
  auto gids = pair.right.port.gids;
  std::rotate(gids.begin(), gids.begin() + 1, gids.end());
  for (uint32_t i = 0; i < gids.size(); ++i) gids[i].index = i;
  pair.fabric.SetGids("right", gids);
  EXPECT_EQ(NextEvent(*pair.right.device), DeviceEventKind::kGidChange);
  pair.right.port = *pair.right.device->QueryPort(1);
  const auto now = ChooseGid(pair.right.port.gids, LinkLayer::kEthernet, {{}, 0, before});
  ASSERT_TRUE(now.has_value());
  EXPECT_EQ(now->gid, before.gid);
  EXPECT_NE(now->index, before.index);

  // The old index is another address now: packets from that address are ignored.
  const auto write = [&] {
    for (End* end : {&pair.left, &pair.right}) EXPECT_TRUE(end->queue_pair->ToReset().ok());
    pair.Connect(1);
    const Segment segment = pair.left.segment(0, 8);
    pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
    return pair.left.Await(1)[0].status;
  };
  EXPECT_EQ(write(), CompletionStatus::kRetryExceeded);
  pair.right.gid = *now;
  EXPECT_EQ(write(), CompletionStatus::kSuccess);

  // A removed address breaks its connections.
  std::erase_if(gids, [&](const GidEntry& entry) { return entry.gid == before.gid; });
  pair.fabric.SetGids("right", gids);
  const Segment segment = pair.left.segment(0, 8);
  pair.left.Post(End::WriteTo(pair.right, 0, segment, 2));
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRetryExceeded);
}

TEST(Fault, FailedDeviceReportsAndRefuses) {
  Pair pair;
  pair.Connect();
  pair.left.PostEmptyReceive(3);
  pair.fabric.FailDevice("left");
  EXPECT_EQ(NextEvent(*pair.left.device), DeviceEventKind::kDeviceFatal);
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kFlushed);
  EXPECT_EQ(pair.left.device->CreateCompletionQueue(1).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(Fault, ResetDropsOutstandingRequests) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Pair pair({.seed = seed});
    pair.Connect();
    pair.right.PostEmptyReceive(1);
    const Segment segment = pair.left.segment(0, 8);
    pair.left.Post(End::WriteTo(pair.right, 0, segment, 2));
    for (End* end : {&pair.left, &pair.right}) ASSERT_TRUE(end->queue_pair->ToReset().ok());
    std::array<Completion, 4> batch;
    EXPECT_EQ(*pair.left.completions->Poll(batch), 0U);
    EXPECT_EQ(*pair.right.completions->Poll(batch), 0U);
    // All slots are free again.
    pair.Connect();
    for (uint32_t i = 0; i < End::kMaxReceive; ++i) pair.right.PostEmptyReceive(i);
  }
}

}  // namespace
}  // namespace rewire::rdma::fake
