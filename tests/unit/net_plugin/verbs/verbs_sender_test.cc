// With adaptive routing the data of a large piece are sent separately from their completion
// notification. Both arrive once, whatever fails between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "tests/unit/net_plugin/verbs/pair.h"

namespace rewire::net {
namespace {

using ::testing::ElementsAre;
using Posted = Spied::Posted;

constexpr auto kWrite = rdma::Operation::kWrite;
constexpr auto kTold = rdma::Operation::kWriteWithImmediate;
constexpr size_t kTotal = 4;        // bytes of a message's completion notification
constexpr char kOwned = 0x5A;       // the program owns the buffer, after the receive
constexpr size_t kPiece = 4 << 10;  // the value of Pair

class AdaptiveRouting : public ::testing::Test {
 protected:
  ~AdaptiveRouting() override { Forget(); }

  void Join(const PairOptions& options) {
    Forget();
    pair_ = std::make_unique<Pair>(options);
    ASSERT_EQ(pair_->Join(), absl::OkStatus());
    pair_->sender_spied->posted.clear();
  }
  static PairOptions Adaptive(size_t ports) {
    PairOptions options;
    options.sender_ports = options.receiver_ports = ports;
    options.adaptive = true;
    return options;
  }
  // Carries a message of `bytes` bytes, whose buffer is the program's again after completion.
  // `between` is called repeatedly.
  void Carry(
      size_t bytes, const std::function<void()>& between = [] {}) {
    out_.resize(bytes);
    for (size_t i = 0; i < bytes; ++i) out_[i] = static_cast<char>(i * 7 + i / 256);
    in_.assign(bytes + 100, 0);
    memory_ = {*pair_->sender->Register(out_.data(), out_.size(), kPtrHost),
               *pair_->receiver->Register(in_.data(), in_.size(), kPtrHost)};
    void* data = in_.data();
    const size_t room = in_.size();
    const int tag = 1;
    const auto receive = pair_->receiver->Irecv(1, &data, &room, &tag, &memory_[1]);
    ASSERT_TRUE(receive.ok());
    Request* send = nullptr;
    bool sent = false;
    bool received = false;
    for (int i = 0; i < 1'000'000 && !(sent && received); ++i) {
      pair_->Advance(nanoseconds(50));
      between();
      if (send == nullptr) {
        const auto made = pair_->sender->Isend(out_.data(), bytes, tag, memory_[0]);
        ASSERT_TRUE(made.ok()) << made.status();
        send = *made;
      } else if (!sent) {
        const auto done = pair_->sender->Test(send, nullptr);
        ASSERT_TRUE(done.ok()) << done.status();
        sent = *done;
      }
      if (received) {
        // The receiver may have to report which data of a failed rail have arrived.
        ASSERT_TRUE(pair_->receiving().Poll()) << pair_->receiving().Failure();
      } else {
        int size = 0;
        const auto done = pair_->receiver->Test(*receive, &size);
        ASSERT_TRUE(done.ok()) << done.status();
        received = *done;
        if (!received) continue;
        ASSERT_EQ(size, static_cast<int>(bytes));
        ASSERT_TRUE(std::equal(out_.begin(), out_.end(), in_.begin()));
        std::fill(in_.begin(), in_.end(), kOwned);
      }
    }
    ASSERT_TRUE(sent && received);
  }
  // Checks that no data that is still on its way lands.
  void ExpectNothingLate() {
    for (const std::string& device : pair_->devices()) pair_->fabric.Release(device);
    pair_->Advance(milliseconds(5));
    EXPECT_TRUE(std::all_of(in_.begin(), in_.end(), [](char c) { return c == kOwned; }));
  }
  void Forget() {
    for (void* memory : memory_) delete static_cast<Registration*>(memory);
    memory_ = {};
  }
  [[nodiscard]] size_t Count(const Posted& what) const {
    size_t count = 0;
    for (const auto& [device, posted] : pair_->sender_spied->posted) {
      count += static_cast<size_t>(std::count(posted.begin(), posted.end(), what));
    }
    return count;
  }

  std::unique_ptr<Pair> pair_;
  std::vector<char> out_;
  std::vector<char> in_;
  std::array<void*, 2> memory_{};
};

TEST_F(AdaptiveRouting, SendsLargePiecesSeparately) {
  Join(Adaptive(1));
  ASSERT_NO_FATAL_FAILURE(Carry(3000));
  EXPECT_THAT(pair_->sender_spied->posted["s0"],
              ElementsAre(Posted{kWrite, 3000, false}, Posted{kTold, kTotal, true}));
}

TEST_F(AdaptiveRouting, SendsSmallPiecesWithImmediate) {
  Join(Adaptive(1));
  ASSERT_NO_FATAL_FAILURE(Carry(1000));
  EXPECT_THAT(pair_->sender_spied->posted["s0"], ElementsAre(Posted{kTold, 1000, true}));
}

TEST_F(AdaptiveRouting, MessageMayHaveBothKindsOfPieces) {
  Join(Adaptive(1));
  ASSERT_NO_FATAL_FAILURE(Carry(kPiece + 500));
  EXPECT_THAT(pair_->sender_spied->posted["s0"],
              ElementsAre(Posted{kWrite, kPiece, false}, Posted{kTold, kTotal, true},
                          Posted{kTold, 500, true}));
}

TEST_F(AdaptiveRouting, DefaultsToOnForInfiniBand) {
  PairOptions options;
  options.link_layer = rdma::LinkLayer::kInfiniBand;
  Join(options);
  ASSERT_NO_FATAL_FAILURE(Carry(3000));
  EXPECT_EQ(Count({kWrite, 3000, false}), 1u);
  options.adaptive = false;
  Join(options);
  ASSERT_NO_FATAL_FAILURE(Carry(3000));
  EXPECT_EQ(Count({kTold, 3000, true}), 1u);
  options.adaptive.reset();
  options.link_layer = rdma::LinkLayer::kEthernet;
  Join(options);
  ASSERT_NO_FATAL_FAILURE(Carry(3000));
  EXPECT_EQ(Count({kTold, 3000, true}), 1u);
}

// A link goes down at each time: before the data, between the data and the notification, after
// both.
TEST_F(AdaptiveRouting, ReplaysBothKindsOfPieces) {
  size_t replayed = 0;
  for (int step = 0; step < 200; ++step) {
    SCOPED_TRACE(step);
    PairOptions options = Adaptive(2);
    options.seed = static_cast<uint64_t>(step);
    Join(options);
    int left = step % 6;
    ASSERT_NO_FATAL_FAILURE(Carry(3000, [&] {
      if (left-- == 0) {
        for (const char* device : {"s0", "r0"}) pair_->fabric.SetLinkUp(device, false);
      }
    }));
    const size_t data = Count({kWrite, 3000, false});
    EXPECT_EQ(Count({kTold, kTotal, true}), data);
    replayed += data - 1;
    ASSERT_NO_FATAL_FAILURE(ExpectNothingLate());
  }
  EXPECT_GT(replayed, 10u);
}

// The data are on their way, and their notification could not be posted. No other rail sends the
// piece before these data can no longer land.
TEST_F(AdaptiveRouting, ReplaysDataWithoutNotification) {
  Join(Adaptive(2));
  bool held = false;
  ASSERT_NO_FATAL_FAILURE(Carry(3000, [&] {
    if (!held && pair_->sending().ring.Whole(0)) {
      pair_->Advance(microseconds(20));
      pair_->fabric.Hold("r0");
      held = true;
      pair_->sender_spied->cut = [this] { pair_->Advance(microseconds(20)); };
    }
    if (pair_->sending().Up() != 3) pair_->sender_spied->cut = nullptr;
    if (in_[0] == kOwned) pair_->fabric.Release("r0");
  }));
  EXPECT_EQ(pair_->sender_spied->cut, nullptr);
  ExpectNothingLate();
}

}  // namespace
}  // namespace rewire::net
