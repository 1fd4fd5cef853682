// A thread waits until the events that it has posted were sent.
#include "reconfig/elastic/participant/agent_link.h"

#include <gtest/gtest.h>

#include <thread>

namespace rewire::elastic {
namespace {

TEST(SentEventsTest, AwaitReturnsAfterTheCallWasReachedAndSent) {
  SentEvents events;
  const uint64_t first = events.Ask();
  const uint64_t second = events.Ask();
  EXPECT_LT(first, second);
  std::thread member([&] {
    events.Reach(second);
    events.NotifySent();
  });
  events.Await(second, Now() + seconds(600));
  events.Await(first, Now() + seconds(600));
  member.join();
}

TEST(SentEventsTest, AwaitReturnsAtDeadlineWhileNothingIsReached) {
  SentEvents events;
  const uint64_t call = events.Ask();
  events.NotifySent();
  events.Await(call, Now() + milliseconds(1));
}

TEST(SentEventsTest, EndReleasesWaitingThreads) {
  SentEvents events;
  const uint64_t call = events.Ask();
  std::thread ends([&] { events.End(); });
  events.Await(call, Now() + seconds(600));
  ends.join();
}

}  // namespace
}  // namespace rewire::elastic
