// Misuse that the fake must refuse, so that users of the layer do not come to rely on it.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>

#include <array>

#include "tests/unit/rdma_fake/pair.h"

namespace rewire::rdma::fake {
namespace {

std::vector<DeviceEventKind> Events(Device& device) {
  std::vector<DeviceEventKind> kinds;
  for (auto event = device.ReadEvent(); event.ok() && event->has_value();
       event = device.ReadEvent()) {
    kinds.push_back((*event)->kind);
  }
  return kinds;
}

TEST(Refusal, RefusesPostsBeforeTheirState) {
  Pair pair;
  const Segment segment = pair.left.segment(0, 8);
  const SendWork write = End::WriteTo(pair.right, 0, segment, 1);
  const ReceiveWork receive{1};
  EXPECT_FALSE(pair.left.queue_pair->PostReceive({&receive, 1}).status.ok());
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&write, 1}).status.ok());
  pair.left.ToInit();
  EXPECT_TRUE(pair.left.queue_pair->PostReceive({&receive, 1}).status.ok());
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&write, 1}).status.ok());
  pair.left.ToReadyToReceive(pair.right, 1);
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&write, 1}).status.ok());
  pair.left.ToReadyToSend({});
  EXPECT_TRUE(pair.left.queue_pair->PostSend({&write, 1}).status.ok());
}

TEST(Refusal, RefusesPostsToFullSendQueue) {
  Pair pair;
  pair.Connect();
  const Segment segment = pair.left.segment(0, 8);
  SendWork write = End::WriteTo(pair.right, 0, segment, 1);
  write.signalled = false;
  for (uint32_t i = 0; i < End::kMaxSend; ++i) pair.left.Post(write);
  PostResult result = pair.left.queue_pair->PostSend({&write, 1});
  EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted) << result.status;
  EXPECT_EQ(result.posted, 0U);
  // All sends have completed, but the program cannot know: none was signalled.
  pair.fabric.Advance(milliseconds(10));
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&write, 1}).status.ok());
}

TEST(Refusal, FreesSlotsWhenSignalledCompletionIsPolled) {
  Pair pair;
  pair.Connect();
  const Segment segment = pair.left.segment(0, 8);
  SendWork write = End::WriteTo(pair.right, 0, segment, 1);
  std::vector<SendWork> chain(End::kMaxSend + 1, write);
  for (SendWork& work : chain) work.signalled = false;
  chain[End::kMaxSend - 1].signalled = true;
  const PostResult result = pair.left.queue_pair->PostSend(chain);
  EXPECT_EQ(result.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(result.posted, End::kMaxSend);
  pair.fabric.Advance(milliseconds(10));
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&write, 1}).status.ok());
  pair.left.Await(1);
  chain.pop_back();
  EXPECT_TRUE(pair.left.queue_pair->PostSend(chain).status.ok());
}

TEST(Refusal, ReportsOverrunOfCompletionQueue) {
  Pair pair({}, 4);
  pair.Connect();
  const Segment segment = pair.left.segment(0, 8);
  const std::vector<SendWork> chain(5, End::WriteTo(pair.right, 0, segment, 1));
  ASSERT_TRUE(pair.left.queue_pair->PostSend(chain).status.ok());
  pair.fabric.Advance(milliseconds(10));
  EXPECT_EQ(Pair::StateOf(pair.left), QueuePairState::kError);
  struct pollfd readable = {pair.left.device->event_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 1);
  const auto event = pair.left.device->ReadEvent();
  ASSERT_TRUE(event.ok() && event->has_value());
  EXPECT_EQ((*event)->kind, DeviceEventKind::kCompletionQueueError);
  EXPECT_EQ((*event)->queue, pair.left.completions->id());
  pair.left.Await(4);
  std::array<Completion, 1> more;
  EXPECT_EQ(pair.left.completions->Poll(more).status().code(), absl::StatusCode::kUnavailable);
}

TEST(Refusal, RefusesKeysOfAnotherDomain) {
  Pair pair;
  pair.Connect();
  // The same memory of the same device, in another open device context.
  End other;
  other.Open(pair.driver.get(), "right");
  auto region = other.device->Register(pair.right.memory.data(), End::kBytes, {true, true, true});
  ASSERT_TRUE(region.ok());
  const Segment segment = pair.left.segment(0, 8);
  SendWork write = End::WriteTo(pair.right, 0, segment, 1);
  write.rkey = (*region)->rkey();
  pair.left.Post(write);
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRemoteAccess);
  EXPECT_EQ(Pair::StateOf(pair.right), QueuePairState::kError);
  EXPECT_EQ(Events(*pair.right.device), std::vector{DeviceEventKind::kQueuePairError});
}

TEST(Refusal, RefusesLocalKeysOfRemoteSides) {
  Pair pair;
  pair.Connect();
  const Segment segment = pair.left.segment(0, 8);
  SendWork write = End::WriteTo(pair.right, 0, segment, 1);
  write.rkey = pair.right.region->lkey();
  pair.left.Post(write);
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRemoteAccess);
}

TEST(Refusal, RefusesUnregisteredLocalMemory) {
  Pair pair;
  pair.Connect();
  const Segment good = pair.left.segment(0, 8);
  const Segment beyond = pair.left.segment(End::kBytes - 7, 8);
  const std::array chain = {End::WriteTo(pair.right, 0, good, 1),
                            End::WriteTo(pair.right, 0, beyond, 2)};
  ASSERT_TRUE(pair.left.queue_pair->PostSend(chain).status.ok());
  const auto done = pair.left.Await(2);
  EXPECT_EQ(done[0].status, CompletionStatus::kSuccess);
  EXPECT_EQ(done[1].status, CompletionStatus::kLocalProtection);
}

TEST(Refusal, RefusesWritesToQueuePairWithoutWriteAccess) {
  Pair pair;
  pair.left.ToInit();
  pair.right.ToInit({true, false, true});
  pair.left.ToReadyToReceive(pair.right, 2);
  pair.right.ToReadyToReceive(pair.left, 1);
  pair.left.ToReadyToSend({1});
  const Segment segment = pair.left.segment(0, 8);
  pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRemoteInvalidRequest);
}

TEST(Refusal, RefusesSendLongerThanTheReceive) {
  Pair pair;
  pair.Connect();
  const Segment into = pair.right.segment(0, 4999);
  const ReceiveWork receive{5, {&into, 1}};
  ASSERT_TRUE(pair.right.queue_pair->PostReceive({&receive, 1}).status.ok());
  const Segment from = pair.left.segment(0, 5000);
  pair.left.Post({1, Operation::kSend, {&from, 1}});
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRemoteInvalidRequest);
  EXPECT_EQ(pair.right.Await(1)[0].status, CompletionStatus::kLocalLength);
}

TEST(Refusal, RefusesMoreSegmentsAndInlineBytesThanRequested) {
  Pair pair;
  pair.Connect();
  const Segment segment = pair.left.segment(0, End::kMaxInline + 1);
  SendWork work = End::WriteTo(pair.right, 0, segment, 1);
  work.inlined = true;
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&work, 1}).status.ok());
  const std::array three = {segment, segment, segment};
  work.inlined = false;
  work.segments = three;
  EXPECT_FALSE(pair.left.queue_pair->PostSend({&work, 1}).status.ok());
}

TEST(Refusal, DifferentPacketNumbersDoNotConnect) {
  Pair pair;
  pair.left.ToInit();
  pair.right.ToInit();
  pair.left.ToReadyToReceive(pair.right, 2);
  pair.right.ToReadyToReceive(pair.left, 100);
  pair.left.ToReadyToSend({101, 8, 3, 7, 1});
  const Segment segment = pair.left.segment(0, 8);
  pair.left.Fill(0, 8, 1);
  pair.left.Post(End::WriteTo(pair.right, 0, segment, 1));
  EXPECT_EQ(pair.left.Await(1)[0].status, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(pair.right.memory[0], 0);
}

TEST(Refusal, SecondRegionOfADescriptorIsReachedByItsOwnAddresses) {
  Pair pair;
  pair.Connect();
  const int fd = ::memfd_create("device memory", 0);
  ASSERT_EQ(::ftruncate(fd, 8192), 0);
  constexpr uint64_t kAddress = 0x7000'0000'0000;
  auto region = pair.right.device->RegisterDmabuf(fd, 100, 4096, kAddress, {true, true, true});
  ASSERT_TRUE(region.ok()) << region.status();
  pair.left.Fill(0, 4096, 9);
  pair.right.PostEmptyReceive(1);
  const Segment segment = pair.left.segment(0, 4096);
  SendWork work = pair.Immediate(segment, 1);
  work.remote_address = kAddress;
  work.rkey = (*region)->rkey();
  pair.left.Post(work);
  EXPECT_EQ(pair.right.Await(1)[0].status, CompletionStatus::kSuccess);
  char first = 0;
  ASSERT_EQ(::pread(fd, &first, 1, 100), 1);
  EXPECT_EQ(first, End::Pattern(0, 9));
  ::close(fd);
}

}  // namespace
}  // namespace rewire::rdma::fake
