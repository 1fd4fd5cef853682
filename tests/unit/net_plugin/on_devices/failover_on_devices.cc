// Traffic over two rails during faults of the devices. The received data is right and in order, and
// no error is returned. `./dev bench failover` measures the interruption.
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>

#include "bench/failover/trial.h"
#include "reconfig/base/counters.h"

namespace rewire::bench {
namespace {

constexpr uint64_t kMessages = 60;

TEST(OnDevices, DeliversAllMessagesDespiteFaults) {
  if (std::getenv("REWIRE_VM_DEVICES") == nullptr) GTEST_SKIP() << "not in the virtual machine";
  const auto opened = Trial::Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  Trial& trial = **opened;
  const auto disturb = [&trial](const char* words) {
    const auto gaps = trial.Disturb(words, kMessages);
    ASSERT_TRUE(gaps.ok()) << words << ": " << gaps.status();
    ASSERT_TRUE(trial.flow().arrivals().flawless()) << words;
  };
  const auto await_rails = [&trial] {
    const absl::Status back = trial.AwaitRails();
    ASSERT_TRUE(back.ok()) << back;
  };
  ASSERT_TRUE(trial.Carry(100).ok());
  const std::pair<const char*, const char*> faults[] = {
      {"rxe0 unplug", "rxe0 plug"},
      {"rxe3 unplug", "rxe3 plug"},
      {"rxe1 down", "rxe1 up"},
      {"rxe2 down", "rxe2 up"},
      {"rxe0 netem loss 100%", "rxe0 clear"},
      {"rxe3 netem loss 100%", "rxe3 clear"},
      {"rxe1 netem loss 3% delay 3ms", "rxe1 clear"},
      {"rxe3 netem delay 3ms 2ms reorder 25% 50%", "rxe3 clear"},
      {"rxe2 netem delay 40ms 10ms", "rxe2 clear"},
      {"rxe1 netem duplicate 20% corrupt 2%", "rxe1 clear"},
  };
  constexpr uint64_t kRailsFail = 6;  // by the first fault of them
  for (const auto& [fault, repair] : faults) {
    ASSERT_NO_FATAL_FAILURE(disturb(fault));
    ASSERT_NO_FATAL_FAILURE(disturb(repair));
    ASSERT_NO_FATAL_FAILURE(await_rails());
  }
  // Delayed packets arrive long after the same data was sent over another rail.
  ASSERT_NO_FATAL_FAILURE(disturb("rxe0 netem delay 1s"));
  ASSERT_TRUE(trial.Carry(400).ok());
  ASSERT_NO_FATAL_FAILURE(disturb("rxe0 clear"));
  ASSERT_NO_FATAL_FAILURE(await_rails());
  ASSERT_NO_FATAL_FAILURE(disturb("rxe0 unplug"));
  ASSERT_NO_FATAL_FAILURE(disturb("rxe1 unplug"));  // no rail is left
  ASSERT_NO_FATAL_FAILURE(disturb("rxe0 plug"));
  ASSERT_NO_FATAL_FAILURE(disturb("rxe1 plug"));
  ASSERT_NO_FATAL_FAILURE(await_rails());
  ASSERT_TRUE(trial.Carry(200).ok());
  EXPECT_TRUE(trial.flow().arrivals().flawless());
  EXPECT_EQ(trial.flow().errors(), 0U);
  EXPECT_GE(trial.rails_failed(), kRailsFail + 1);
}

// A link between two ports, one of which fails: two other ports take over, not the sockets.
TEST(OnDevices, UsesFallbackDevices) {
  if (std::getenv("REWIRE_VM_DEVICES") == nullptr) GTEST_SKIP() << "not in the virtual machine";
  const absl::StatusOr<net::Net*> opened = net::Net::Get();
  ASSERT_TRUE(opened.ok()) << opened.status();
  net::Net& net = **opened;
  const auto flow = Flow::Connect(&net, 0, 1);
  ASSERT_TRUE(flow.ok()) << flow.status();
  const uint64_t failed = ValueOf(Counter::kNetRailsFailed);
  const uint64_t back = ValueOf(Counter::kNetRailsBack);
  // Carries messages until the condition holds.
  const auto carry_until = [&](const std::function<bool()>& so) {
    const Time deadline = Now() + seconds(60);
    const auto carried = (*flow)->Carry(60, [&] { return !so() && Now() < deadline; });
    ASSERT_TRUE(carried.ok()) << carried.status();
    ASSERT_TRUE(so());
  };
  const auto fault = [](const char* words) {
    ASSERT_EQ(std::system((std::string("fault ") + words).c_str()), 0) << words;
  };
  ASSERT_TRUE((*flow)->Carry(60).ok());
  for (const char* failing : {"rxe0", "rxe1"}) {
    const uint64_t so_far = ValueOf(Counter::kNetRailsFallback);
    ASSERT_NO_FATAL_FAILURE(fault((std::string(failing) + " unplug").c_str()));
    ASSERT_NO_FATAL_FAILURE(
        carry_until([&] { return ValueOf(Counter::kNetRailsFallback) > so_far; }));
    ASSERT_NO_FATAL_FAILURE(fault((std::string(failing) + " plug").c_str()));
    ASSERT_NO_FATAL_FAILURE(carry_until([&] {
      return ValueOf(Counter::kNetRailsBack) - back == ValueOf(Counter::kNetRailsFailed) - failed;
    }));
  }
  EXPECT_GE(ValueOf(Counter::kNetRailsFailed), failed + 2);
  EXPECT_TRUE((*flow)->arrivals().flawless());
  EXPECT_EQ((*flow)->errors(), 0U);
}

}  // namespace
}  // namespace rewire::bench
