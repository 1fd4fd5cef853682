// A NIC's events, which a worker or a caller reads, and its cache of memory regions.
#include "net_plugin/verbs/nic.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "reconfig/base/clock.h"
#include "tests/fakes/rdma/fabric.h"
#include "tests/unit/net_plugin/hang_guard.h"

namespace rewire::net {
namespace {

// A test that exceeds this time hangs.

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

class MrCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fabric_.AddDevice({"fake0"});
    auto opened = fabric_.MakeDriver({"fake0"})->Open("fake0");
    ASSERT_TRUE(opened.ok());
    device_ = *opened;
    cache_ = std::make_unique<MrCache>(device_.get());
  }
  uint32_t KeyOf(const char* data, size_t bytes) { return (*cache_->Get(data, bytes))->lkey(); }

  rdma::fake::Fabric fabric_;
  std::shared_ptr<rdma::Device> device_;
  std::unique_ptr<MrCache> cache_;
  alignas(4096) char memory_[64 << 10];
};

TEST_F(MrCacheTest, RegistersPagesOnce) {
  const auto first = cache_->Get(memory_ + 100, 5000);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(KeyOf(memory_, 8192), (*first)->lkey());
  EXPECT_EQ(KeyOf(memory_ + 8191, 1), (*first)->lkey());
  EXPECT_NE(KeyOf(memory_ + 8191, 2), (*first)->lkey());
}

TEST_F(MrCacheTest, FindsLargerRangeNextToSmallerRange) {
  const auto small = cache_->Get(memory_, 1);
  const auto large = cache_->Get(memory_, sizeof memory_);
  ASSERT_TRUE(small.ok() && large.ok());
  EXPECT_EQ(KeyOf(memory_ + 9000, 100), (*large)->lkey());
}

TEST_F(MrCacheTest, LastUserDeregisters) {
  auto first = cache_->Get(memory_, 100);
  auto second = cache_->Get(memory_, 100);
  ASSERT_TRUE(first.ok() && second.ok());
  const uint32_t key = (*first)->lkey();
  first->reset();
  EXPECT_EQ(KeyOf(memory_, 100), key);
  second->reset();
  EXPECT_NE(KeyOf(memory_, 100), key);
}

TEST_F(MrCacheTest, DoesNotShareDmabufRanges) {
  const int fd = memfd_create("dmabuf", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  const auto a = cache_->GetDmabuf(memory_, 4096, 4096, fd);
  const auto b = cache_->GetDmabuf(memory_, 4096, 4096, fd);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status();
  EXPECT_NE((*a)->lkey(), (*b)->lkey());
  EXPECT_FALSE(cache_->GetDmabuf(memory_, 4096, 0, -1).ok());
  close(fd);
}

// The service thread registers while other threads also register.
TEST_F(MrCacheTest, ServesManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 500; ++i) {
        const auto got = cache_->Get(memory_ + (i * 7 + t) % 60'000, 3000);
        EXPECT_TRUE(got.ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rewire::net
