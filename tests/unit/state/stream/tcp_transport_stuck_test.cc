// A caller waits for a transport whose owner thread does not reach the caller's command.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <thread>

#include "reconfig/state/stream/tcp_transport.h"
#include "tests/fakes/process/stopped_wait.h"

namespace rewire::state {
namespace {

// Calls `begins` and then closes a stream, while the transport's thread is inside `hold`.
void CloseUnder(Duration patience, const std::function<void()>& hold,
                const std::function<void()>& begins) {
  TcpOptions options;
  options.command = patience;
  const auto transport = TcpTransport::Start(options);
  ASSERT_TRUE(transport.ok()) << transport.status();
  const StreamKey key{Purpose::kTransition, 2, {{77}}};
  std::atomic<bool> holds = false;
  // A fragment to an invalid address fails at once, on the transport's thread.
  (*transport)->Send(key, {1, 0, "nowhere"}, {}, [&](const absl::Status&) {
    holds = true;
    hold();
  });
  while (!holds) std::this_thread::yield();
  begins();
  (*transport)->Close(key);
}

TEST(StuckTransportTest, ProcessStopIsNotStuckThread) {
  StoppedWait stopped;
  const auto block = [&] { stopped.Block(); };
  const auto begin = [&] { stopped.Begin(); };
  EXPECT_EQ(stopped.Run(milliseconds(4500), [&] { CloseUnder(seconds(4), block, begin); }), 0);
}

TEST(StuckTransportDeathTest, StuckThreadEndsProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(CloseUnder(milliseconds(1), pause, [] {}), "did not take a command within 1 ms");
}

}  // namespace
}  // namespace rewire::state
