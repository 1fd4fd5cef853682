// Named cases of rail failures and their effect on a link's messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/unit/net_plugin/verbs/pair.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

class Rails : public ::testing::Test {
 protected:
  void Join(const PairOptions& options) {
    pair_ = std::make_unique<Pair>(options);
    const absl::Status joined = pair_->Join();
    ASSERT_TRUE(joined.ok()) << joined;
  }
  // Sends `bytes` bytes as memory of type `type`; returns the first failure of either side.
  absl::Status Carry(size_t bytes, int type = kPtrHost) {
    std::vector<char> out(bytes);
    for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<char>(i * 7 + i / 256);
    std::vector<char> in(bytes);
    void* const from = *pair_->sender->Register(out.data(), bytes, type);
    void* const to = *pair_->receiver->Register(in.data(), bytes, type);
    absl::Status status = pair_->Carry(out.data(), from, in.data(), to, bytes, between_);
    EXPECT_TRUE(pair_->sender->Deregister(from).ok());
    EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
    if (status.ok() && in != out) return absl::DataLossError("wrong bytes");
    return status;
  }
  void SetAll(bool up) {
    for (const std::string& device : pair_->devices()) pair_->fabric.SetLinkUp(device, up);
  }

  std::unique_ptr<Pair> pair_;
  std::function<void()> between_ = [] {};
};

TEST_F(Rails, SharesAreInProportionToSpeed) {
  PairOptions options;
  options.mbps = {100'000, 25'000};
  Join(options);
  ASSERT_EQ(Carry(16 << 20), absl::OkStatus());
  const double fast = static_cast<double>(pair_->sender_spied->bytes["s0"]);
  const double slow = static_cast<double>(pair_->sender_spied->bytes["s1"]);
  EXPECT_GT(fast, 2.5 * slow);
  EXPECT_LT(fast, 6 * slow);
}

// Small traffic also uses every rail: a failure of an unused rail would not be detected.
TEST_F(Rails, RotatesRailsForSingleMessages) {
  Join({});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Carry(1000), absl::OkStatus());
  EXPECT_GE(pair_->sender_spied->bytes["s0"], 4000u);
  EXPECT_GE(pair_->sender_spied->bytes["s1"], 4000u);
}

TEST_F(Rails, JoinsOnePortWithTwo) {
  PairOptions options;
  options.sender_ports = 1;
  Join(options);
  EXPECT_EQ(pair_->sending().rails(), 2u);
  ASSERT_EQ(Carry(1 << 20), absl::OkStatus());
  EXPECT_GT(pair_->receiver_spied->bytes["r0"] + pair_->receiver_spied->bytes["r1"], 0u);
}

TEST_F(Rails, UsesSocketsWithoutRailsAndReturns) {
  Join({});
  SetAll(false);
  ASSERT_EQ(Carry(1 << 20), absl::OkStatus());
  EXPECT_EQ(pair_->sending().Up(), 0u);
  SetAll(true);
  for (int i = 0; i < 100'000 && pair_->receiving().Up() == 0; ++i) {
    pair_->Advance(microseconds(1));
    ASSERT_TRUE(pair_->sending().Poll());
    ASSERT_TRUE(pair_->receiving().Poll());
  }
  pair_->sender_spied->bytes.clear();
  ASSERT_EQ(Carry(1 << 20), absl::OkStatus());
  EXPECT_GE(pair_->sender_spied->bytes["s0"] + pair_->sender_spied->bytes["s1"], 1u << 20);
}

// A worker accepts links; the peer's program asks for its connections later.
TEST_F(Rails, WaitsForLateAccept) {
  Pair pair({});
  const Time begun = pair.fabric.now();
  pair.Stop(false, true);
  EXPECT_EQ(pair.Join([&] {
    const Duration join = pair.sending().options().join;
    if (pair.fabric.now() - begun > 4 * join) pair.Stop(false, false);
  }),
            absl::OkStatus());
}

TEST_F(Rails, FailsWhenPeerNeverAccepts) {
  Pair pair({});
  pair.Stop(false, true);
  const absl::Status status = pair.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer in time"));
}

// The sender offers the rail repeatedly and gives up each time, at any point. The receiver gets all
// offers at once.
TEST_F(Rails, IgnoresLateAnswers) {
  for (int silence = 8'000; silence < 24'000; silence += 500) {
    SCOPED_TRACE(silence);
    PairOptions options;
    options.sender_ports = options.receiver_ports = 1;
    options.unwatched = true;
    Join(options);
    ASSERT_TRUE(pair_->sender_spied->queue_pairs.begin()->second->ToError().ok());
    const auto poll = [&](bool both) {
      pair_->Advance(microseconds(1));
      ASSERT_TRUE(pair_->sending().Poll()) << pair_->sending().Failure();
      if (both) {
        ASSERT_TRUE(pair_->receiving().Poll()) << pair_->receiving().Failure();
      }
    };
    const RailCounters& counters = *pair_->sending().options().counters;
    for (int i = 0; i < 100'000 && counters.failed.load() == 0; ++i) poll(true);
    // Polls until both sides have fenced the rail.
    for (int i = 0; i < 100'000 && !pair_->sending().IsSettled(); ++i) poll(true);
    ASSERT_EQ(counters.back.load(), 0u);
    for (int i = 0; i < silence; ++i) poll(false);
    for (int i = 0; i < 100'000 && counters.back.load() == 0; ++i) poll(true);
    ASSERT_EQ(counters.back.load(), 1u);
    ASSERT_EQ(Carry(100'000), absl::OkStatus());
  }
}

// The first message has arrived and its acknowledgement is lost. The receiver gets its last message
// while it fences the rail, and nobody polls it further.
TEST_F(Rails, IdleReceiverFinishesRecovery) {
  Join({});
  const RailCounters& counters = *pair_->sending().options().counters;
  const int tag = 1;
  const size_t room = 100;
  std::vector<char> out(room, 'o');
  std::vector<char> in(room);
  void* const from = *pair_->sender->Register(out.data(), room, kPtrHost);
  void* to = *pair_->receiver->Register(in.data(), room, kPtrHost);
  void* data = in.data();
  Request* receives[2];
  for (Request*& r : receives) {
    r = *pair_->receiver->Irecv(1, &data, &room, &tag, &to);
    ASSERT_NE(r, nullptr);
  }
  const auto send = [&] {
    for (int i = 0; i < 10'000; ++i) {
      pair_->Advance(nanoseconds(200));
      if (Request* const made = *pair_->sender->Isend(out.data(), room, tag, from)) return made;
      (void)pair_->receiver->Test(receives[1], nullptr);
    }
    return static_cast<Request*>(nullptr);
  };
  Request* const first = send();
  ASSERT_NE(first, nullptr);
  pair_->fabric.SetLoss("r0", 1'000'000);
  for (int i = 0; i < 100'000 && counters.failed.load() == 0; ++i) {
    pair_->Advance(nanoseconds(200));
    ASSERT_FALSE(*pair_->sender->Test(first, nullptr));
  }
  ASSERT_EQ(counters.failed.load(), 1u);
  ASSERT_TRUE(*pair_->receiver->Test(receives[0], nullptr));
  for (int i = 0; i < 1000 && !pair_->receiving().Busy(); ++i) {
    ASSERT_FALSE(*pair_->sender->Test(first, nullptr));
    ASSERT_FALSE(*pair_->receiver->Test(receives[1], nullptr));
  }
  Request* const second = *pair_->sender->Isend(out.data(), room, tag, from);
  ASSERT_NE(second, nullptr);
  pair_->fabric.Advance(microseconds(20));
  ASSERT_TRUE(*pair_->receiver->Test(receives[1], nullptr));
  ASSERT_TRUE(pair_->receiving().Busy());
  bool sent = false;
  for (int i = 0; i < 100'000 && !sent; ++i) {
    pair_->Advance(nanoseconds(200));
    sent = *pair_->sender->Test(first, nullptr);
  }
  EXPECT_TRUE(sent);
  EXPECT_TRUE(pair_->sender->Deregister(from).ok());
  EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
}

// A silent port appears healthy, and joining asks only the device and the peer.
TEST_F(Rails, DoesNotUseRailBeforeProbeArrives) {
  for (const char* silent : {"s0", "r0"}) {
    SCOPED_TRACE(silent);
    Join({});
    const RailCounters& counters = *pair_->sending().options().counters;
    pair_->fabric.SetLoss(silent, 1'000'000);
    for (int i = 0; i < 10 && counters.failed.load() == 0; ++i)
      ASSERT_EQ(Carry(1 << 18), absl::OkStatus());
    ASSERT_EQ(counters.failed.load(), 1u);
    for (int i = 0; i < 40; ++i) ASSERT_EQ(Carry(1 << 18), absl::OkStatus());
    EXPECT_EQ(counters.failed.load(), 1u);
    EXPECT_EQ(counters.back.load(), 0u);
    pair_->fabric.SetLoss(silent, 0);
    for (int i = 0; i < 400 && counters.back.load() == 0; ++i)
      ASSERT_EQ(Carry(1 << 18), absl::OkStatus());
    EXPECT_EQ(counters.back.load(), 1u);
  }
}

// The held packets arrive long after the other rail has completed the message and the program owns
// the buffer again.
TEST_F(Rails, FenceBlocksWritesAfterReplay) {
  for (const bool unfenced : {true, false}) {
    PairOptions options;
    options.unfenced = unfenced;
    Join(options);
    std::vector<char> out(1 << 18, 'o');
    std::vector<char> in(out.size());
    void* const from = *pair_->sender->Register(out.data(), out.size(), kPtrHost);
    void* const to = *pair_->receiver->Register(in.data(), in.size(), kPtrHost);
    pair_->fabric.Hold("r0");
    EXPECT_EQ(pair_->Carry(out.data(), from, in.data(), to, out.size(), between_),
              absl::OkStatus());
    EXPECT_TRUE(in == out);
    std::fill(in.begin(), in.end(), 'p');
    pair_->fabric.Release("r0");
    pair_->Advance(milliseconds(1));
    const bool landed = std::find(in.begin(), in.end(), 'o') != in.end();
    EXPECT_EQ(landed, unfenced);
    EXPECT_TRUE(pair_->sender->Deregister(from).ok());
    EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
  }
}

TEST_F(Rails, DeviceMemoryWaitsForARail) {
  Join({});
  SetAll(false);
  const Time down = pair_->fabric.now();
  between_ = [&] {
    if (pair_->fabric.now() - down > milliseconds(10)) SetAll(true);
  };
  EXPECT_EQ(Carry(1 << 20, kPtrCuda), absl::OkStatus());
}

TEST_F(Rails, DeviceMemoryWaitHasDeadline) {
  Join({});
  SetAll(false);
  const absl::Status status = Carry(1 << 20, kPtrCuda);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("no rail is left"));
}

TEST_F(Rails, FlushesDeviceMemoryByRead) {
  Join({});
  std::vector<char> memory(8192);
  void* const host = *pair_->receiver->Register(memory.data(), memory.size(), kPtrHost);
  void* const device = *pair_->receiver->Register(memory.data(), memory.size(), kPtrCuda);
  void* data[] = {memory.data(), memory.data() + 100};
  void* mrs[] = {host, host};
  EXPECT_EQ(*pair_->receiver->Iflush(2, data, mrs), nullptr);
  mrs[0] = device;
  pair_->receiver_spied->bytes.clear();
  for (int i = 0; i < 100; ++i) {
    const auto flush = pair_->receiver->Iflush(2, data, mrs);
    ASSERT_TRUE(flush.ok()) << flush.status();
    ASSERT_NE(*flush, nullptr);
    bool done = false;
    for (int k = 0; k < 100'000 && !done; ++k) {
      const auto tested = pair_->receiver->Test(*flush, nullptr);
      ASSERT_TRUE(tested.ok()) << tested.status();
      done = *tested;
    }
    EXPECT_TRUE(done);
  }
  // The expected counts are per NIC.
  EXPECT_EQ(pair_->receiver_spied->bytes["r0"], 100u);
  EXPECT_EQ(pair_->receiver_spied->bytes["r1"], 100u);
  EXPECT_TRUE(pair_->receiver->Deregister(host).ok());
  EXPECT_TRUE(pair_->receiver->Deregister(device).ok());
}

TEST_F(Rails, ReportsDisconnectedPeerOnce) {
  Join({});
  ASSERT_EQ(Carry(100), absl::OkStatus());
  std::vector<char> out(100);
  void* const from = *pair_->sender->Register(out.data(), out.size(), kPtrHost);
  pair_->receiving().Fail(absl::CancelledError("the program was told to abort"));
  pair_->receiver.reset();
  absl::Status status;
  for (int i = 0; i < 10'000 && status.ok(); ++i) {
    status = pair_->sender->Isend(out.data(), out.size(), 1, from).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(pair_->sender->Deregister(from).ok());
}

// Another path would not fix the error.
TEST_F(Rails, DeregisteredMemoryIsErrorNotFailover) {
  Join({});
  std::vector<char> out(8192);
  std::vector<char> in(8192);
  void* const from = *pair_->sender->Register(out.data(), out.size(), kPtrHost);
  void* const to = *pair_->receiver->Register(in.data(), in.size(), kPtrHost);
  void* data = in.data();
  const size_t room = in.size();
  const int tag = 1;
  const auto receive = pair_->receiver->Irecv(1, &data, &room, &tag, &to);
  ASSERT_TRUE(receive.ok());
  EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
  absl::Status status;
  Request* send = nullptr;
  for (int i = 0; i < 100'000 && status.ok(); ++i) {
    pair_->Advance(nanoseconds(200));
    if (send == nullptr) {
      const auto made = pair_->sender->Isend(out.data(), out.size(), tag, from);
      ASSERT_TRUE(made.ok()) << made.status();
      send = *made;
    } else {
      status = pair_->sender->Test(send, nullptr).status();
    }
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_TRUE(pair_->sender->Deregister(from).ok());
}

// A killed process loses its memory before its connections. The message is one piece: of two
// pieces, either rail may refuse its own first.
TEST_F(Rails, WaitsForDisconnectAfterRefusedRequest) {
  Join({});
  std::vector<char> out(4096);
  std::vector<char> in(4096);
  void* const from = *pair_->sender->Register(out.data(), out.size(), kPtrHost);
  void* const to = *pair_->receiver->Register(in.data(), in.size(), kPtrHost);
  void* data = in.data();
  const size_t room = in.size();
  const int tag = 1;
  ASSERT_TRUE(pair_->receiver->Irecv(1, &data, &room, &tag, &to).ok());
  EXPECT_TRUE(pair_->receiver->Deregister(to).ok());
  Request* send = nullptr;
  const RailCounters& counters = *pair_->sending().options().counters;
  for (int i = 0; i < 100'000 && counters.failed.load() == 0; ++i) {
    if (send == nullptr) {
      send = *pair_->sender->Isend(out.data(), out.size(), tag, from);
    } else {
      ASSERT_EQ(pair_->sender->Test(send, nullptr).status(), absl::OkStatus());
    }
  }
  EXPECT_EQ(counters.failed.load(), 1u);
  pair_->receiving().Fail(absl::CancelledError("killed"));
  pair_->receiver.reset();
  absl::Status status;
  for (int i = 0; i < 100'000 && status.ok(); ++i) {
    status = pair_->sender->Test(send, nullptr).status();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(pair_->sender->Deregister(from).ok());
}

TEST_F(Rails, FailsWithoutActivePort) {
  Pair pair({});
  for (const std::string& device : pair.devices()) {
    if (device[0] == 'r') pair.fabric.SetLinkUp(device, false);
  }
  const absl::Status status = pair.Join();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("r0:1 has no link"));
}

// Each device only understands peers that use the same options.
TEST_F(Rails, NegotiatesCommonOptions) {
  for (const uint32_t options : {0x1U, 0x7U, 0xfU, 0xaU}) {
    PairOptions pair;
    pair.receiver_ece = {0xfa4e, options};
    Join(pair);
    EXPECT_EQ(Carry(100'000), absl::OkStatus()) << options;
  }
}

TEST_F(Rails, ConnectsWithOneOfTwoRails) {
  Pair pair({});
  pair.fabric.SetLinkUp("r1", false);
  EXPECT_EQ(pair.Join(), absl::OkStatus());
}

}  // namespace
}  // namespace rewire::net
