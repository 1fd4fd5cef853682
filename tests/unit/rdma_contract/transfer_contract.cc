// Transfers between two working endpoints.
#include <array>

#include "tests/unit/rdma_contract/stage.h"

namespace rewire::rdma {
namespace {

class Transfer : public Contract {
 protected:
  void SetUp() override {
    Contract::SetUp();
    if (!HasFatalFailure()) ConnectBoth();
  }
};

TEST_P(Transfer, DevicesAreListedWithTheirPorts) {
  const auto devices = driver_->Devices();
  ASSERT_TRUE(devices.ok()) << devices.status();
  ASSERT_FALSE(devices->empty());
  for (const DeviceInfo& device : *devices) {
    EXPECT_FALSE(device.name.empty());
    EXPECT_GT(device.max_work_requests, 0U);
    ASSERT_FALSE(device.ports.empty());
    EXPECT_GE(device.ports[0].active_mtu, 256U);
    EXPECT_FALSE(device.ports[0].pkeys.empty());
  }
  EXPECT_GT(left_.port.speed_mbps, 0U);
  EXPECT_NE(left_.device->info().guid, 0U);
  EXPECT_EQ(driver_->Open("no_such_device").status().code(), absl::StatusCode::kNotFound);
}

TEST_P(Transfer, WriteWithImmediateArrivesWhole) {
  for (const uint32_t bytes : {0U, 1U, 4096U, 100'001U}) {
    SCOPED_TRACE(bytes);
    left_.Fill(0, bytes, bytes);
    right_.PostEmptyReceive(70);
    const Segment segment = left_.segment(0, bytes);
    SendWork work = End::WriteTo(right_, 100, segment, 7);
    work.operation = Operation::kWriteWithImmediate;
    work.immediate = 0x01020304;
    left_.Post(work);
    const Completion received = right_.Await(1)[0];
    EXPECT_EQ(received.status, CompletionStatus::kSuccess) << Name(received.status);
    EXPECT_EQ(received.kind, CompletionKind::kReceiveImmediate);
    EXPECT_EQ(received.id, 70U);
    EXPECT_EQ(received.immediate, 0x01020304U);
    EXPECT_EQ(received.bytes, bytes);
    EXPECT_EQ(received.queue_pair, right_.queue_pair->number());
    EXPECT_TRUE(right_.Holds(100, bytes, bytes));
    const Completion sent = left_.Await(1)[0];
    EXPECT_EQ(sent.status, CompletionStatus::kSuccess) << Name(sent.status);
    EXPECT_EQ(sent.kind, CompletionKind::kWrite);
    EXPECT_EQ(sent.id, 7U);
  }
}

TEST_P(Transfer, WritesThenImmediateInOneChain) {
  constexpr uint32_t kPiece = 5000;
  constexpr size_t kPieces = 20;  // more than one call's batch
  left_.Fill(0, kPieces * kPiece, 3);
  right_.PostEmptyReceive(1);
  std::vector<Segment> segments;
  std::vector<SendWork> chain;
  segments.reserve(kPieces);
  for (size_t i = 0; i < kPieces; ++i) {
    segments.push_back(left_.segment(i * kPiece, kPiece));
    SendWork work{i, Operation::kWrite, {&segments.back(), 1}};
    work.remote_address = right_.address(i * kPiece);
    work.rkey = right_.region->rkey();
    work.signalled = false;
    chain.push_back(work);
  }
  SendWork last{99, Operation::kWriteWithImmediate};
  last.remote_address = right_.address();
  last.rkey = right_.region->rkey();
  last.immediate = 5;
  chain.push_back(last);
  const PostResult result = left_.queue_pair->PostSend(chain);
  ASSERT_TRUE(result.status.ok()) << result.status;
  EXPECT_EQ(result.posted, chain.size());
  EXPECT_EQ(right_.Await(1)[0].immediate, 5U);
  EXPECT_TRUE(right_.Holds(0, kPieces * kPiece, 3));
  // Only this request was signalled.
  EXPECT_EQ(left_.Await(1)[0].id, 99U);
}

TEST_P(Transfer, ReadFetchesWhatWasWrittenBefore) {
  constexpr uint32_t kBytes = 30'000;
  left_.Fill(0, kBytes, 4);
  const Segment out = left_.segment(0, kBytes);
  const Segment back = left_.segment(kBytes, kBytes);
  SendWork write{1, Operation::kWrite, {&out, 1}};
  write.remote_address = right_.address();
  write.rkey = right_.region->rkey();
  SendWork read = write;
  read.id = 2;
  read.operation = Operation::kRead;
  read.segments = {&back, 1};
  const std::array chain = {write, read};
  ASSERT_TRUE(left_.queue_pair->PostSend(chain).status.ok());
  const auto done = left_.Await(2);
  EXPECT_EQ(done[0].id, 1U);
  EXPECT_EQ(done[1].id, 2U);
  EXPECT_EQ(done[1].status, CompletionStatus::kSuccess) << Name(done[1].status);
  EXPECT_EQ(done[1].kind, CompletionKind::kRead);
  EXPECT_TRUE(left_.Holds(kBytes, kBytes, 4));
  // The READ has returned the bytes, so they are in the peer's memory.
  EXPECT_TRUE(right_.Holds(0, kBytes, 4));
}

TEST_P(Transfer, InlineBytesAreTakenWhenPosted) {
  ASSERT_GE(left_.queue_pair->max_inline(), End::kMaxInline);
  std::array<char, End::kMaxInline> mine;
  for (size_t i = 0; i < mine.size(); ++i) mine[i] = End::Pattern(i, 6);
  right_.PostEmptyReceive(1);
  // The key is 0: the memory is not registered.
  const Segment segment{reinterpret_cast<uintptr_t>(mine.data()), End::kMaxInline, 0};
  SendWork work = End::WriteTo(right_, 0, segment, 1);
  work.operation = Operation::kWriteWithImmediate;
  work.inlined = true;
  left_.Post(work);
  mine.fill(0);
  EXPECT_EQ(right_.Await(1)[0].status, CompletionStatus::kSuccess);
  EXPECT_TRUE(right_.Holds(0, End::kMaxInline, 6));
}

TEST_P(Transfer, SendFillsTheSegmentsOfTheReceive) {
  constexpr uint32_t kBytes = 9000;
  left_.Fill(0, kBytes, 8);
  const std::array into = {right_.segment(0, 1000), right_.segment(1000, 20'000)};
  const ReceiveWork receive{11, into};
  ASSERT_TRUE(right_.queue_pair->PostReceive({&receive, 1}).status.ok());
  const std::array from = {left_.segment(0, 3000), left_.segment(3000, kBytes - 3000)};
  left_.Post({12, Operation::kSend, from});
  const Completion received = right_.Await(1)[0];
  EXPECT_EQ(received.status, CompletionStatus::kSuccess) << Name(received.status);
  EXPECT_EQ(received.kind, CompletionKind::kReceive);
  EXPECT_EQ(received.bytes, kBytes);
  EXPECT_FALSE(received.immediate.has_value());
  EXPECT_TRUE(right_.Holds(0, kBytes, 8));
  EXPECT_EQ(left_.Await(1)[0].kind, CompletionKind::kSend);
}

TEST_P(Transfer, BothWaysManyTimes) {
  // The queues wrap several times: polling frees slots.
  constexpr uint32_t kBytes = 64;
  for (uint32_t round = 0; round < 5 * End::kMaxSend; ++round) {
    for (const auto& [from, to] : {std::pair(&left_, &right_), std::pair(&right_, &left_)}) {
      to->PostEmptyReceive(round);
      from->Fill(0, kBytes, round);
      const Segment segment = from->segment(0, kBytes);
      SendWork work = End::WriteTo(*to, kBytes, segment, round);
      work.operation = Operation::kWriteWithImmediate;
      work.immediate = round;
      from->Post(work);
      ASSERT_EQ(to->Await(1)[0].immediate, round);
      ASSERT_TRUE(to->Holds(kBytes, kBytes, round));
      ASSERT_EQ(from->Await(1)[0].status, CompletionStatus::kSuccess);
    }
  }
}

TEST_P(Transfer, EceIsThereOrSaysThatItIsNot) {
  ASSERT_NO_FATAL_FAILURE(left_.Make());
  const auto ece = left_.queue_pair->QueryEce();
  if (!ece.ok()) {
    EXPECT_EQ(ece.status().code(), absl::StatusCode::kUnimplemented) << ece.status();
  }
}

INSTANTIATE_TEST_SUITE_P(On, Transfer, ::testing::ValuesIn(Grounds()), GroundName);

}  // namespace
}  // namespace rewire::rdma
