// Copies between host memory and a device that does not finish its work.
#include "net_plugin/verbs/staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "tests/unit/held_device/held_device.h"

namespace rewire::net {
namespace {

using ::testing::HasSubstr;

constexpr size_t kBytes = 512;
// A copy that has not ended after this time counts as hung.
constexpr Duration kHangGuard = seconds(30);

class StagingTest : public ::testing::Test {
 protected:
  ~StagingTest() override {
    device_.Release();
    for (std::thread& thread : threads_) thread.join();
  }

  HeldDevice device_;
  const state::StatePlace memory_ = state::DeviceMemory(device_.context(), kBytes);
  std::vector<std::thread> threads_;
  const std::function<void(std::function<void()>)> run_ = [this](std::function<void()> work) {
    threads_.emplace_back(std::move(work));
  };
};

TEST_F(StagingTest, ACopyThatDoesNotEndIsAnErrorInTime) {
  for (const bool fetch : {true, false}) {
    Staging staging(run_, milliseconds(50));
    if (fetch) {
      staging.Fetch(memory_.data, kBytes);
    } else {
      staging.Store(memory_.data, kBytes);
    }
    std::optional<absl::Status> ended;
    for (const Time deadline = Now() + kHangGuard; !ended && Now() < deadline;) {
      std::this_thread::yield();
      ended = staging.Ended();
    }
    ASSERT_TRUE(ended.has_value());
    EXPECT_THAT(std::string(ended->message()),
                HasSubstr("copy of 512 bytes of device memory: timed out after 50 ms"));
  }
}

TEST_F(StagingTest, EndsWhileACopyDoesNot) {
  std::atomic<int> begun = 0;
  for (int copies = 1; copies <= 4; ++copies) {
    Staging staging(
        [&](const std::function<void()>& work) {
          run_([&begun, work] {
            ++begun;
            work();
          });
        },
        milliseconds(50));
    staging.Fetch(memory_.data, kBytes);
    while (begun < copies) std::this_thread::yield();
  }
}

}  // namespace
}  // namespace rewire::net
