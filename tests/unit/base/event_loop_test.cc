// PollSet and Inbox: a turn of an event loop, and inputs for it from other threads.
#include "reconfig/base/event_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace rewire {
namespace {

struct Pair {
  Pair() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  UniqueFd near;
  UniqueFd far;
};

TEST(PollSetTest, ReportsEachDescriptorByItsNumber) {
  Pair said;
  Pair quiet;
  Pair ended;
  ASSERT_EQ(write(said.far.get(), "x", 1), 1);
  ended.far.reset();
  PollSet turn;
  turn.Add(ended.near.get(), 0);
  turn.Add(quiet.near.get(), POLLIN);
  turn.Add(said.near.get(), POLLIN | POLLOUT);
  turn.Wait();
  EXPECT_EQ(turn.Ready(said.near.get()), POLLIN | POLLOUT);
  EXPECT_EQ(turn.Ready(quiet.near.get()), 0);
  EXPECT_NE(turn.Ready(ended.near.get()) & POLLHUP, 0);
  EXPECT_EQ(turn.Ready(said.far.get()), 0);  // was not added
}

TEST(PollSetTest, EndsAtTheEarliestTimeAndNotBefore) {
  const Time early = Now() + milliseconds(5);
  PollSet turn;
  turn.Add(-1, POLLIN);
  turn.Until(Now() + seconds(1000));
  turn.Until(early);
  turn.Until(std::nullopt);
  turn.Until(Time::max());
  turn.Wait();
  EXPECT_GE(Now(), early);
  EXPECT_EQ(turn.Ready(-1), 0);
}

TEST(PollSetTest, PassedTimeOnlyLooks) {
  Pair pair;
  ASSERT_EQ(write(pair.far.get(), "x", 1), 1);
  PollSet turn;
  turn.Add(pair.near.get(), POLLIN);
  turn.Until(Time{});
  turn.Wait();
  EXPECT_EQ(turn.Ready(pair.near.get()), POLLIN);
}

TEST(InboxTest, PostEndsTheWaitOfItsLoop) {
  Inbox<int> inbox;
  std::thread other([&] {
    inbox.Post(1);
    inbox.Post(2);
  });
  std::vector<int> got;
  while (got.size() < 2) {
    PollSet turn;
    turn.Add(inbox.event().fd(), POLLIN);
    turn.Wait();
    inbox.event().Clear();
    for (const int input : inbox.TakeAll()) got.push_back(input);
  }
  other.join();
  EXPECT_EQ(got, (std::vector<int>{1, 2}));
  PollSet turn;
  turn.Add(inbox.event().fd(), POLLIN);
  turn.Until(Time{});
  turn.Wait();
  EXPECT_EQ(turn.Ready(inbox.event().fd()), 0);
}

// The destructor of a dropped input may post: an object that the input owned may call the inbox.
TEST(InboxTest, DroppedInputMayPost) {
  using Input = std::function<void()>;
  Inbox<Input> inbox;
  const auto post = [&inbox](int*) { inbox.Post([] {}); };
  static int object = 0;
  inbox.Post([owned = std::shared_ptr<int>(&object, post)] {});
  inbox.Close();
  inbox.Post([] {});
  EXPECT_TRUE(inbox.TakeAll().empty());
}

}  // namespace
}  // namespace rewire
