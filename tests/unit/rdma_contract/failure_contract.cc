// Errors, and the reuse of an endpoint after an error.
#include <poll.h>

#include <algorithm>
#include <array>

#include "tests/unit/rdma_contract/stage.h"

namespace rewire::rdma {
namespace {

class Failure : public Contract {
 protected:
  SendWork WriteOf(const Segment& segment, uint64_t id) {
    return End::WriteTo(right_, 0, segment, id);
  }
  // Checks that one write with immediate succeeds.
  void ExpectWorks(uint32_t seed) {
    left_.Fill(0, 2000, seed);
    right_.PostEmptyReceive(seed);
    const Segment segment = left_.segment(0, 2000);
    SendWork work = WriteOf(segment, seed);
    work.operation = Operation::kWriteWithImmediate;
    work.immediate = seed;
    left_.Post(work);
    EXPECT_EQ(right_.Await(1)[0].immediate, seed);
    EXPECT_TRUE(right_.Holds(0, 2000, seed));
    EXPECT_EQ(left_.Await(1)[0].status, CompletionStatus::kSuccess);
  }
  void ExpectState(End* end, QueuePairState state) {
    const Time deadline = Now() + seconds(10);
    auto seen = end->queue_pair->QueryState();
    while (seen.ok() && *seen != state && Now() < deadline) seen = end->queue_pair->QueryState();
    ASSERT_TRUE(seen.ok()) << seen.status();
    EXPECT_EQ(*seen, state);
  }
};

TEST_P(Failure, BadRemoteKeyEndsBothSides) {
  ConnectBoth();
  right_.PostEmptyReceive(5);
  std::fill(right_.memory.begin(), right_.memory.end(), 'x');
  const Segment segment = left_.segment(0, 64);
  SendWork bad = WriteOf(segment, 1);
  bad.rkey ^= 0x5a5a00;
  const std::array chain = {bad, WriteOf(segment, 2)};
  EXPECT_TRUE(left_.queue_pair->PostSend(chain).status.ok());
  const auto done = left_.Await(2);
  EXPECT_EQ(done[0].status, CompletionStatus::kRemoteAccess) << Name(done[0].status);
  EXPECT_EQ(done[1].status, CompletionStatus::kFlushed) << Name(done[1].status);
  EXPECT_EQ(right_.Await(1)[0].status, CompletionStatus::kFlushed);
  ExpectState(&left_, QueuePairState::kError);
  ExpectState(&right_, QueuePairState::kError);
  EXPECT_EQ(right_.memory[0], 'x');
}

TEST_P(Failure, BoundsOfTheRegionHold) {
  ConnectBoth();
  const Segment segment = left_.segment(0, 64);
  SendWork work = WriteOf(segment, 1);
  work.remote_address = right_.address(End::kBytes - 63);
  left_.Post(work);
  EXPECT_EQ(left_.Await(1)[0].status, CompletionStatus::kRemoteAccess);
}

TEST_P(Failure, AccessThatWasNotGivenIsRefused) {
  ConnectBoth();
  right_.region.reset();
  auto region = right_.device->Register(right_.memory.data(), End::kBytes, {true, false, true});
  ASSERT_TRUE(region.ok()) << region.status();
  right_.region = *std::move(region);
  const Segment segment = left_.segment(0, 64);
  left_.Post(WriteOf(segment, 1));
  EXPECT_EQ(left_.Await(1)[0].status, CompletionStatus::kRemoteAccess);
}

TEST_P(Failure, DeregisteredMemoryIsOutOfReach) {
  ConnectBoth();
  const Segment segment = left_.segment(0, 64);
  const SendWork work = WriteOf(segment, 1);
  ASSERT_TRUE(right_.region->Deregister().ok());
  EXPECT_FALSE(right_.region->Deregister().ok());
  left_.Post(work);
  EXPECT_EQ(left_.Await(1)[0].status, CompletionStatus::kRemoteAccess);
}

TEST_P(Failure, ErrorFlushesEverythingOutstanding) {
  ConnectBoth();
  for (uint64_t id = 0; id < 4; ++id) right_.PostEmptyReceive(id);
  ASSERT_TRUE(right_.queue_pair->ToError().ok());
  const auto flushed = right_.Await(4);
  for (uint64_t id = 0; id < 4; ++id) {
    EXPECT_EQ(flushed[id].id, id);
    EXPECT_EQ(flushed[id].status, CompletionStatus::kFlushed);
  }
  // A write posted from now on is also flushed.
  const Segment segment = right_.segment(0, 8);
  SendWork work = End::WriteTo(left_, 0, segment, 9);
  work.signalled = false;
  right_.Post(work);
  const Completion sent = right_.Await(1)[0];
  EXPECT_EQ(sent.id, 9U);
  EXPECT_EQ(sent.status, CompletionStatus::kFlushed);
  // soft-RoCE may forget a receive that is posted after the error.
  right_.PostEmptyReceive(10);
  std::array<Completion, 1> late;
  for (int i = 0; i < 100; ++i) {
    const auto polled = right_.completions->Poll(late);
    ASSERT_TRUE(polled.ok()) << polled.status();
    if (*polled == 0) continue;
    EXPECT_EQ(late[0].id, 10U);
    EXPECT_EQ(late[0].status, CompletionStatus::kFlushed);
  }
}

TEST_P(Failure, PeerThatIsGoneExceedsRetries) {
  ConnectBoth(1);
  ASSERT_TRUE(right_.queue_pair->ToError().ok());
  std::fill(right_.memory.begin(), right_.memory.end(), 'x');
  const Segment segment = left_.segment(0, 64);
  const std::array chain = {WriteOf(segment, 1), WriteOf(segment, 2)};
  ASSERT_TRUE(left_.queue_pair->PostSend(chain).status.ok());
  const auto done = left_.Await(2);
  EXPECT_EQ(done[0].status, CompletionStatus::kRetryExceeded) << Name(done[0].status);
  EXPECT_EQ(done[1].status, CompletionStatus::kFlushed) << Name(done[1].status);
  EXPECT_EQ(right_.memory[0], 'x');
}

TEST_P(Failure, NobodyReadyToReceiveExceedsRetries) {
  ConnectBoth(7, 2);
  const Segment segment = left_.segment(0, 64);
  SendWork work = WriteOf(segment, 1);
  work.operation = Operation::kWriteWithImmediate;
  left_.Post(work);
  EXPECT_EQ(left_.Await(1)[0].status, CompletionStatus::kRnrRetryExceeded);
}

TEST_P(Failure, LateReceiveIsWaitedFor) {
  ConnectBoth();
  left_.Fill(0, 64, 2);
  const Segment segment = left_.segment(0, 64);
  SendWork work = WriteOf(segment, 1);
  work.operation = Operation::kWriteWithImmediate;
  left_.Post(work);
  std::array<Completion, 1> none;
  for (int i = 0; i < 100; ++i) EXPECT_EQ(left_.completions->Poll(none).value_or(1), 0U);
  right_.PostEmptyReceive(3);
  EXPECT_EQ(right_.Await(1)[0].status, CompletionStatus::kSuccess);
  EXPECT_TRUE(right_.Holds(0, 64, 2));
  EXPECT_EQ(left_.Await(1)[0].status, CompletionStatus::kSuccess);
}

TEST_P(Failure, WorksAgainAfterReset) {
  for (uint32_t round = 1; round <= 3; ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(ConnectBoth());
    ExpectWorks(round);
    right_.PostEmptyReceive(77);
    for (End* end : {&left_, &right_}) ASSERT_TRUE(end->queue_pair->ToError().ok());
    EXPECT_EQ(right_.Await(1)[0].status, CompletionStatus::kFlushed);
    for (End* end : {&left_, &right_}) {
      ASSERT_TRUE(end->queue_pair->ToReset().ok());
      ExpectState(end, QueuePairState::kReset);
    }
  }
}

TEST_P(Failure, StatesCannotBeSkipped) {
  EXPECT_FALSE(left_.queue_pair->ToReadyToSend({}).ok());
  const absl::Status status = left_.queue_pair->ToReadyToReceive({});
  EXPECT_FALSE(status.ok());
  // The error names the call and the device.
  EXPECT_NE(status.message().find("ibv_modify_qp"), status.message().npos) << status;
  EXPECT_NE(std::string(status.message()).find(GetParam().left), std::string::npos) << status;
}

TEST_P(Failure, FullQueuesSaySo) {
  ConnectBoth();
  ReceiveWork receive;
  PostResult result;
  // A device may provide more than requested.
  for (int i = 0; i < 100'000 && result.status.ok(); ++i) {
    result = right_.queue_pair->PostReceive({&receive, 1});
  }
  EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted) << result.status;
  EXPECT_EQ(result.posted, 0U);
}

TEST_P(Failure, NoEventsWithoutACause) {
  struct pollfd readable = {left_.device->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
  const auto event = left_.device->ReadEvent();
  ASSERT_TRUE(event.ok()) << event.status();
  EXPECT_FALSE(event->has_value());
}

INSTANTIATE_TEST_SUITE_P(On, Failure, ::testing::ValuesIn(Grounds()), GroundName);

}  // namespace
}  // namespace rewire::rdma
