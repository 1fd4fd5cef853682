// Messages are split if splitting was faster.
#include "net_plugin/socket/split_choice.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/net_plugin/proxy.h"
#include "tests/unit/net_plugin/socket_ends.h"

namespace rewire::net {
namespace {

constexpr size_t kBytes = 512 << 10;

class SplitChoiceTest : public ::testing::Test {
 protected:
  // Sends messages of these times one after another. Returns the number of split messages.
  int Send(int count, const std::function<Duration(int number, bool split)>& time,
           size_t bytes = kBytes) {
    int split_ones = 0;
    for (int i = 0; i < count; ++i) {
      const bool split = choice_.Next(bytes);
      split_ones += split ? 1 : 0;
      const Duration took = time(i, split);
      choice_.Add(bytes, split, took);
      (split ? time_split_ : time_whole_) += took;
    }
    return split_ones;
  }

  static Duration Times(bool split, int split_us) { return microseconds(split ? split_us : 100); }

  SplitChoice choice_;
  Duration time_split_{};
  Duration time_whole_{};
};

TEST_F(SplitChoiceTest, DoesNotSplitFirstMessages) {
  for (size_t i = 1; i < SplitChoice::kTrial; ++i) {
    EXPECT_FALSE(choice_.Next(kBytes));
    choice_.Add(kBytes, false, microseconds(100));
  }
  EXPECT_TRUE(choice_.Next(kBytes));
}

TEST_F(SplitChoiceTest, SplitsWhenMuchFaster) {
  Send(100, [](int, bool split) { return Times(split, 60); });
  EXPECT_GT(Send(1000, [](int, bool split) { return Times(split, 60); }), 900);
}

// Splitting would cost more CPU time for a small gain.
TEST_F(SplitChoiceTest, DoesNotSplitWhenSlightlyFaster) {
  EXPECT_LT(Send(1000, [](int, bool split) { return Times(split, 90); }), 100);
}

TEST_F(SplitChoiceTest, AdaptsWhenMachineChanges) {
  const auto busy = [](int, bool split) { return Times(split, 150); };
  const auto idle = [](int, bool split) { return Times(split, 60); };
  for (int round = 0; round < 3; ++round) {
    Send(1000, busy);
    EXPECT_LT(Send(1000, busy), 100) << round;
    Send(1000, idle);
    EXPECT_GT(Send(1000, idle), 900) << round;
  }
}

TEST_F(SplitChoiceTest, TrialsTakeFewPercentOfTime) {
  Send(100000, [](int, bool split) { return Times(split, 1000); });
  EXPECT_LT(time_split_, time_whole_ / 20);
  EXPECT_GT(time_split_, Duration::zero());
}

TEST_F(SplitChoiceTest, IgnoresSingleDelay) {
  const auto delayed = [](int i, bool split) {
    return i % 6 == 0 ? milliseconds(3) : Times(split, 60);
  };
  Send(100, delayed);
  EXPECT_GT(Send(10000, delayed), 9000);
}

TEST_F(SplitChoiceTest, DecidesPerSizeClass) {
  Send(
      1000, [](int, bool split) { return Times(split, 150); }, 512 << 10);
  Send(
      1000, [](int, bool split) { return Times(split, 60); }, 4 << 20);
  EXPECT_LT(Send(
                1000, [](int, bool split) { return Times(split, 150); }, 512 << 10),
            100);
  EXPECT_GT(Send(
                1000, [](int, bool split) { return Times(split, 60); }, 4 << 20),
            900);
}

// Several messages are outstanding at a time, so that those of a trial end among others.
TEST_F(SplitChoiceTest, JudgesPipelinedTrialsByTheirOwnMessages) {
  std::vector<bool> on_their_way;
  int split_ones = 0;
  for (int i = 0; i < 2000; ++i) {
    on_their_way.push_back(choice_.Next(kBytes));
    if (on_their_way.size() < 8) continue;
    const bool split = on_their_way.front();
    on_their_way.erase(on_their_way.begin());
    choice_.Add(kBytes, split, Times(split, 60));
    split_ones += i >= 1000 && split ? 1 : 0;
  }
  EXPECT_GT(split_ones, 900);
}

// Both sides stay consistent whatever is chosen.
TEST(MeasuredSplittingTest, DeliversSplitAndUnsplitMessages) {
  net_test::SocketEnds ends;
  ASSERT_NO_FATAL_FAILURE(ends.Join(2, net_test::LoopbackV4(), Splitting::kMeasured));
  for (int i = 0; i < 40; ++i) {
    const std::vector<char> sent =
        net_test::Pattern(kLeastChunkBytes * 2 + 17, static_cast<uint64_t>(i) + 1);
    std::vector<char> got(sent.size());
    Request* const receive = ends.Receive(&got);
    Request* const send = ends.Send(sent);
    const Time deadline = net_test::Soon();
    bool sent_all = false;
    while (!net_test::SocketEnds::Done(ends.receiver.get(), receive)) {
      sent_all = sent_all || net_test::SocketEnds::Done(ends.sender.get(), send);
      ASSERT_LT(Now(), deadline) << i;
    }
    if (!sent_all) {
      ASSERT_TRUE(net_test::SocketEnds::Wait(ends.sender.get(), send).ok());
    }
    ASSERT_TRUE(got == sent) << i;
  }
}

}  // namespace
}  // namespace rewire::net
