// Events of a device that a worker reads.
#include "net_plugin/verbs/nic.h"

#include <gtest/gtest.h>

#include <thread>

#include "reconfig/base/clock.h"
#include "tests/fakes/rdma/fabric.h"

namespace rewire::net {
namespace {

// A test that exceeds this time hangs.
constexpr Duration kHangGuard = seconds(120);

class NicTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fabric_.AddDevice({"fake0"});
    const auto driver = fabric_.MakeDriver({"fake0"});
    const auto devices = driver->Devices();
    ASSERT_TRUE(devices.ok()) << devices.status();
    auto opened = Nic::Open(driver.get(), "fake0", devices->front().ports[0]);
    ASSERT_TRUE(opened.ok()) << opened.status();
    nic_ = *std::move(opened);
  }

  rdma::fake::Fabric fabric_;
  std::shared_ptr<Nic> nic_;
};

TEST_F(NicTest, WorkerReadsEachEvent) {
  nic_->WatchEvents();
  for (uint32_t downs = 1; downs <= 3; ++downs) {
    fabric_.SetLinkUp("fake0", false);
    const Time deadline = Now() + kHangGuard;
    while (nic_->downs() < downs && Now() < deadline) std::this_thread::yield();
    ASSERT_EQ(nic_->downs(), downs);
    fabric_.SetLinkUp("fake0", true);
  }
}

TEST_F(NicTest, CallerReadsEventsWithoutWorker) {
  fabric_.SetLinkUp("fake0", false);
  EXPECT_EQ(nic_->downs(), 0u);
  nic_->ReadEvents();
  EXPECT_EQ(nic_->downs(), 1u);
}

}  // namespace
}  // namespace rewire::net
