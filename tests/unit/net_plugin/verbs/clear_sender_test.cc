// How often a receiver announces its receives to the sender: seldom, and always early enough.
#include <gtest/gtest.h>

#include <deque>
#include <vector>

#include "tests/unit/net_plugin/verbs/pair.h"

namespace rewire::net {
namespace {

constexpr size_t kBytes = 100;

class ClearInTime : public ::testing::Test {
 protected:
  ClearInTime() : pair_(OneRail()) {
    EXPECT_EQ(pair_.Join(), absl::OkStatus());
    from_ = *pair_.sender->Register(out_.data(), out_.size(), kPtrHost);
    to_ = *pair_.receiver->Register(in_.data(), in_.size(), kPtrHost);
    pair_.receiver_spied->posted.clear();
  }
  ~ClearInTime() override {
    EXPECT_EQ(pair_.sender->Deregister(from_), absl::OkStatus());
    EXPECT_EQ(pair_.receiver->Deregister(to_), absl::OkStatus());
  }

  static PairOptions OneRail() {
    PairOptions options;
    options.sender_ports = options.receiver_ports = 1;
    return options;
  }
  void Post(int receives) {
    for (int i = 0; i < receives; ++i) {
      void* data = in_.data() + kBytes * (posted_++ % kMaxRequests);
      const size_t room = kBytes;
      const int tag = 1;
      const auto made = pair_.receiver->Irecv(1, &data, &room, &tag, &to_);
      ASSERT_TRUE(made.ok() && *made != nullptr);
      receives_.push_back(*made);
    }
  }
  // Carries the next message and its receive to the end.
  void Carry() {
    out_[0] = static_cast<char>(++carried_);
    Request* send = nullptr;
    bool sent = false;
    bool received = false;
    for (int i = 0; i < 100'000 && !(sent && received); ++i) {
      pair_.Advance(nanoseconds(200));
      if (send == nullptr) {
        const auto made = pair_.sender->Isend(out_.data(), kBytes, 1, from_);
        ASSERT_TRUE(made.ok());
        send = *made;
      } else if (!sent) {
        const auto done = pair_.sender->Test(send, nullptr);
        ASSERT_TRUE(done.ok());
        sent = *done;
      }
      if (!received) {
        const auto done = pair_.receiver->Test(receives_.front(), nullptr);
        ASSERT_TRUE(done.ok());
        received = *done;
      }
    }
    ASSERT_TRUE(sent && received);
    EXPECT_EQ(in_[kBytes * ((carried_ - 1) % kMaxRequests)], out_[0]);
    receives_.pop_front();
  }
  [[nodiscard]] size_t Told() const { return pair_.receiver_spied->posted["r0"].size(); }

  Pair pair_;
  std::vector<char> out_ = std::vector<char>(kBytes);
  std::vector<char> in_ = std::vector<char>(kBytes * kMaxRequests);
  void* from_ = nullptr;
  void* to_ = nullptr;
  std::deque<Request*> receives_;
  uint64_t posted_ = 0;
  uint64_t carried_ = 0;
};

TEST_F(ClearInTime, ClearsFirstReceiveAtOnce) {
  Post(1);
  EXPECT_EQ(Told(), 1u);
}

TEST_F(ClearInTime, ClearsReceivesPostedAheadTogether) {
  Post(8);
  EXPECT_EQ(Told(), 4u);  // announcements of 1, 1, 2 and 4 receives
}

TEST_F(ClearInTime, WindowOfEightNeedsQuarterOfRequests) {
  Post(8);
  const size_t before = Told();
  for (int i = 0; i < 64; ++i) {
    Carry();
    Post(1);
  }
  EXPECT_EQ(Told() - before, 16u);
}

// For any number of receives, nobody waits for a receive that the sender does not know.
TEST_F(ClearInTime, ClearsAllPostedReceivesBeforeWait) {
  for (int ahead = 1; ahead <= static_cast<int>(kMaxRequests); ++ahead) {
    Post(ahead);
    for (int i = 0; i < ahead; ++i) ASSERT_NO_FATAL_FAILURE(Carry());
  }
}

}  // namespace
}  // namespace rewire::net
